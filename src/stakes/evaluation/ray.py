"""Answer batches on many workers over Ray: each worker loads the model once and answers chunks of the plan.

    workers = OverRay(model, copy_of(model, "./my-vlm"), workers=4)
    run(model, samples, assignments, Setting(), "outcomes.jsonl", RunOptions(workers=workers))

Ray Data maps the chunks (``batching.chunk_batches``) over a pool of actors and returns each batch once it is answered.
Grading and the log stay with the run, so outcomes, fingerprint and policy are those of a run without Ray, and either
can resume the other's log. A worker first compares its model with the run's. What it refuses (``StakesError``) is
raised here as the same error. A worker that dies is started again and redoes its chunk, at most ``TRIES`` times.

Questions travel with their chunk, and images as whatever ``Sample.load`` needs (a path, the bytes, the seed of a page),
once per chunk. So files must stand at the same path on every machine. ``ray.init()`` starts Ray here, or joins the
cluster that RAY_ADDRESS names. A Ray that already runs in this process is used and left running.
"""

import atexit
import logging
import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.evaluation.batching import Batch, BatchImages, answer_batch, chunk_batches, read_ahead
from stakes.evaluation.fingerprint import Setting
from stakes.models.base import VLM, Answer
from stakes.models.identity import identity
from stakes.models.loading import off_gpu, on_gpu, threads

TRIES = 3  # of a chunk whose worker dies: a machine may go away, but an image that crashes a decoder stays
EACH = 4  # chunks per worker at least, so that none waits long for the last one


@dataclass(frozen=True)
class OverRay:
    """The ``BatchAnswerer`` of copies of one model; ``workers``: None for one per GPU, or as many as the CPUs feed."""

    model: Any
    make: Callable[[], VLM]
    workers: int | None = None

    def __post_init__(self) -> None:
        need_ray(self.workers)

    def __call__(
        self, samples: Sequence[Sample], batches: Sequence[Batch], setting: Setting
    ) -> Generator[tuple[Batch, list[Answer]]]:
        """Each batch when it is answered; Ray is started for the first and released after the last."""
        if not batches:
            return
        expected = identity(self.model)
        with off_gpu(self.model), _running() as ray:
            size, share = _share(ray.cluster_resources(), self.workers, on_gpu(self.model))
            images = [sample.digest for sample in samples]
            chunks = [_packed(samples, chunk, setting) for chunk in chunk_batches(images, batches, EACH * size)]
            tries = ray.remote(num_cpus=0, scheduling_strategy=_here(ray))(_Tries).remote()
            worker = (self.make, expected, os.getcwd(), tries)
            left = set(batches)
            with closing(_mapped(ray, chunks, min(size, len(chunks)), share, worker)) as arriving:
                for batch, answers in arriving:
                    if isinstance(answers, StakesError):
                        raise answers
                    left.discard(batch)
                    yield batch, answers
        if left:
            raise StakesError(f"{len(left)} of {len(batches)} batches never came back from Ray; start again to resume")


def _here(ray: Any) -> Any:
    """On this node, which the run needs anyway: any other may go away."""
    strategies = ray.util.scheduling_strategies
    return strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def need_ray(workers: int | None = None) -> None:
    """Raise now, and not after the model is loaded, if Ray is missing or there would be no worker."""
    if workers is not None and workers < 1:
        raise BadInput(f"at least one worker is needed, not {workers}")
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        raise BadInput("workers on a cluster need Ray; run: pip install 'stakes[ray]'")


def _share(cluster: Mapping[str, float], workers: int | None, gpu: bool) -> tuple[int, dict[str, float]]:
    """How many workers, and what each takes of the cluster; by default each has what a run without Ray would have."""
    cpus = cluster.get("CPU", 0.0)
    gpus = int(cluster.get("GPU", 0.0))
    if gpu:
        if not gpus:
            raise BadInput("the model is on a GPU and the Ray cluster has none; join one that has, or leave out --ray")
        size = workers or gpus
        return size, {"num_cpus": min(1.0, cpus / size), "num_gpus": 1 / -(-size // gpus)}
    size = workers or max(1, int(cpus // threads()))
    each = cpus / size
    return size, {"num_cpus": float(int(each)) if each >= 1 else each}  # Ray gives a worker as many threads as CPUs


@contextmanager
def _running() -> Iterator[Any]:
    """Ray, quiet; shut down afterwards if it was not there before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent; Ray has no argument for it
    import ray
    import ray.data  # its own logs and bars would mix with the lines of progress
    import ray.util.scheduling_strategies

    logger = logging.getLogger("ray.data")
    before, running = logger.level, ray.is_initialized()
    try:
        if not running:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        logger.setLevel(logging.ERROR)
        yield ray
    except ConnectionError as error:
        raise BadInput(f"no Ray cluster can be joined ({error}); check RAY_ADDRESS") from error
    except ray.exceptions.RayTaskError:
        raise  # a bug, whose trace is needed
    except ray.exceptions.RayError as error:
        why = str(error).split("\n")[0]
        raise StakesError(f"Ray gave up ({why}); what was answered is in the log: start again to resume") from error
    finally:
        logger.setLevel(before)
        if not running:
            ray.shutdown()


def _mapped(
    ray: Any, chunks: Sequence[bytes], size: int, share: Mapping[str, float], worker: tuple[Any, ...]
) -> Generator[tuple[Batch, Any]]:
    """(batch, answers or error) as they arrive."""
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1  # bytes: a batch is returned at once, not when a block of 128 MB is full
    with ray.data.DataContext.current(context):
        rows = [{"chunk": number, "work": work} for number, work in enumerate(chunks)]
        answered = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=worker,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
            **share,
        )
        # No prefetching: it holds a batch back until the next one is there.
        for block in answered.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for done in block["done"].to_pylist():
                yield pickle.loads(done)


def _packed(samples: Sequence[Sample], chunk: Sequence[Batch], setting: Setting) -> bytes:
    """What a worker needs of a chunk: its samples by index; samples of one image share one way to load it."""
    from ray import cloudpickle  # a synthetic page's ``load`` is a closure, which pickle cannot send

    loads: dict[str, Any] = {}
    needed = [i for batch in chunk for i, _ in batch]
    for i in needed:
        loads.setdefault(samples[i].digest, samples[i].load)
    sent = {i: replace(samples[i], load=loads[samples[i].digest]) for i in needed}
    packed: bytes = cloudpickle.dumps((sent, list(chunk), setting))
    return packed


class _Tries:
    """Counts how often each chunk was started; Ray itself would restart one without end."""

    def __init__(self) -> None:
        self.started: dict[int, int] = {}

    def start(self, chunk: int) -> int:
        """Count one more start and return how many there were."""
        self.started[chunk] = self.started.get(chunk, 0) + 1
        return self.started[chunk]


class _Worker:
    """One process with one model."""

    def __init__(self, make: Callable[[], VLM], expected: Mapping[str, str], folder: str, tries: Any) -> None:
        self.make, self.expected, self.tries = make, expected, tries
        self.model: VLM | None = None
        self.images = BatchImages()
        with suppress(OSError):  # relative paths mean the same as in the run
            os.chdir(folder)
        # Ray 2.60 now and then deadlocks in its own destructors when a worker leaves, which then keeps its memory.
        atexit.register(os._exit, 0)

    def __call__(self, rows: Any) -> Iterator[Any]:
        """A table of chunks -> tables of one pickled (batch, answers or error) each."""
        import pyarrow

        for row in rows.to_pylist():
            for done in self._answers(row["chunk"], row["work"]):
                yield pyarrow.table({"done": pyarrow.array([pickle.dumps(done)], pyarrow.binary())})

    def _answers(self, chunk: int, work: bytes) -> Iterator[tuple[Batch, Any]]:
        import ray

        samples, batches, setting = pickle.loads(work)
        batch = batches[0]
        try:
            if ray.get(self.tries.start.remote(chunk)) > TRIES:
                named = f"samples {samples[batch[0][0]].id!r} to {samples[batches[-1][-1][0]].id!r}"
                raise StakesError(f"{named}: {TRIES} workers died over them (of memory, or of an image); start again")
            model = self._loaded()
            with closing(read_ahead(model, samples, batches, setting, self.images)) as read:
                for batch, requests in read:
                    yield batch, answer_batch(model, samples, batch, requests)
        except StakesError as error:
            yield batch, error

    def _loaded(self) -> VLM:
        """The model, once it is verified to be the run's."""
        if self.model is None:
            model = self.make()
            own = identity(model)
            keys = [key for key in {**self.expected, **own} if self.expected.get(key) != own.get(key)]
            if keys:
                raise BadInput(
                    f"a worker's model is not the run's: {', '.join(keys)} differ; give every machine the same one"
                )
            self.model = model
        return self.model
