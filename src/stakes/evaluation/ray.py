"""How do batches reach many workers? Over Ray: each worker loads the model once and answers stretches of the plan.

    run(model, asked, lanes, Setting(), "outcomes.jsonl", spread=OverRay(model, copy_of(model, "./my-vlm"), workers=4))

Ray Data maps the stretches (``batches.stretches``) over a pool of actors and hands each batch back when it is answered;
grading and the log stay with the run, so outcomes, fingerprint and policy are those of a run without Ray, and either
goes on with the other's log. A worker first compares its model with the run's. What it refuses (``StakesError``) comes
back as the very same error; one that dies is started again and redoes its stretch, at most ``TRIES`` times.

Questions travel with their stretch, images as whatever ``Asked.load`` needs (a path, the bytes, the seed of a page)
and once a stretch. So files must stand at the same path on every machine. ``ray.init()`` starts Ray here, or joins the
cluster that RAY_ADDRESS names; Ray that runs in this process already is used, and left running.
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

from stakes.errors import BadInput, StakesError
from stakes.evaluation.batching import Batch, Images, answer_batch, stretches
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.models.base import VLM, Answer
from stakes.models.identity import identity
from stakes.models.loading import off_gpu, on_gpu, threads

TRIES = 3  # of a stretch whose worker dies: a machine may go away, but an image that crashes a decoder stays
EACH = 4  # stretches a worker at least, so that none waits long for the last one


@dataclass(frozen=True)
class OverRay:
    """The ``Answering`` of copies of one model; ``workers``: None for one per GPU, or as many as the CPUs feed."""

    model: Any
    make: Callable[[], VLM]
    workers: int | None = None

    def __post_init__(self) -> None:
        need_ray(self.workers)

    def __call__(
        self, asked: Sequence[Asked], batches: Sequence[Batch], setting: Setting
    ) -> Generator[tuple[Batch, list[Answer]]]:
        """Each batch when it is answered; Ray is started for the first and let go after the last."""
        if not batches:
            return
        who = identity(self.model)
        with off_gpu(self.model), _running() as ray:
            size, share = _share(ray.cluster_resources(), self.workers, on_gpu(self.model))
            images = [one.digest for one in asked]
            units = [_packed(asked, unit, setting) for unit in stretches(images, batches, EACH * size)]
            tries = ray.remote(num_cpus=0)(_Tries).remote()
            worker = (self.make, who, os.getcwd(), tries)
            left = set(batches)
            with closing(_mapped(ray, units, min(size, len(units)), share, worker)) as arriving:
                for batch, answers in arriving:
                    if isinstance(answers, StakesError):
                        raise answers
                    left.discard(batch)
                    yield batch, answers
        if left:
            raise StakesError(f"{len(left)} of {len(batches)} batches never came back from Ray; start again to go on")


def need_ray(workers: int | None = None) -> None:
    """Say now, and not after the model is loaded, that there is no Ray or would be no worker."""
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
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what runs here; Ray has no argument for it
    import ray
    import ray.data  # what it logs and draws would get between the lines of progress

    spoken = logging.getLogger("ray.data")
    before, found = spoken.level, ray.is_initialized()
    try:
        if not found:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        spoken.setLevel(logging.ERROR)
        yield ray
    except ConnectionError as error:
        raise BadInput(f"no Ray cluster can be joined ({error}); check RAY_ADDRESS") from error
    except ray.exceptions.RayTaskError:
        raise  # a fault in the code, whose trace is wanted
    except ray.exceptions.RayError as error:
        why = str(error).split("\n")[0]
        raise StakesError(f"Ray gave up ({why}); what was answered is in the log: start again to go on") from error
    finally:
        spoken.setLevel(before)
        if not found:
            ray.shutdown()


def _mapped(
    ray: Any, units: Sequence[bytes], size: int, share: Mapping[str, float], worker: tuple[Any, ...]
) -> Generator[tuple[Batch, Any]]:
    """(batch, answers or error) as they arrive."""
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1  # bytes: a batch is handed on at once, not when a block of 128 MB is full
    with ray.data.DataContext.current(context):
        rows = [{"unit": number, "work": work} for number, work in enumerate(units)]
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


def _packed(asked: Sequence[Asked], unit: Sequence[Batch], setting: Setting) -> bytes:
    """What a worker must know of a stretch: its samples by place, those of one image with one way to load it."""
    from ray import cloudpickle  # a page's way to be drawn is a closure, which pickle cannot send

    loads: dict[str, Any] = {}
    for batch in unit:
        for i, _ in batch:
            loads.setdefault(asked[i].digest, asked[i].load)
    samples = {i: replace(asked[i], load=loads[asked[i].digest]) for batch in unit for i, _ in batch}
    packed: bytes = cloudpickle.dumps((samples, list(unit), setting))
    return packed


class _Tries:
    """Counts how often each stretch was begun; Ray itself would begin one again without end."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}

    def begin(self, unit: int) -> int:
        """So many times by now."""
        self.begun[unit] = self.begun.get(unit, 0) + 1
        return self.begun[unit]


class _Worker:
    """One process with one model."""

    def __init__(self, make: Callable[[], VLM], who: Mapping[str, str], folder: str, tries: Any) -> None:
        self.make, self.who, self.tries = make, who, tries
        self.model: VLM | None = None
        self.images = Images()
        with suppress(OSError):  # relative paths mean what they mean to the run
            os.chdir(folder)
        # Ray 2.60 now and then deadlocks in its own destructors when a worker leaves, which then keeps its memory.
        atexit.register(os._exit, 0)

    def __call__(self, rows: Any) -> Iterator[Any]:
        """A table of stretches -> tables of one pickled (batch, answers or error) each."""
        import pyarrow

        for row in rows.to_pylist():
            for done in self._answers(row["unit"], row["work"]):
                yield pyarrow.table({"done": pyarrow.array([pickle.dumps(done)], pyarrow.binary())})

    def _answers(self, unit: int, work: bytes) -> Iterator[tuple[Batch, Any]]:
        import ray

        samples, batches, setting = pickle.loads(work)
        batch = batches[0]
        try:
            if ray.get(self.tries.begin.remote(unit)) > TRIES:
                named = f"samples {samples[batch[0][0]].id!r} to {samples[batches[-1][-1][0]].id!r}"
                raise StakesError(f"{named}: {TRIES} workers died over them (of memory, or of an image); start again")
            model = self._loaded()
            for batch in batches:
                yield batch, answer_batch(model, samples, batch, setting, self.images)
        except StakesError as error:
            yield batch, error

    def _loaded(self) -> VLM:
        """The model, once it is known to be the run's."""
        if self.model is None:
            model = self.make()
            mine = identity(model)
            keys = [key for key in {**self.who, **mine} if self.who.get(key) != mine.get(key)]
            if keys:
                raise BadInput(
                    f"a worker's model is not the run's: {', '.join(keys)} differ; give every machine the same one"
                )
            self.model = model
        return self.model
