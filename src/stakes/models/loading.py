"""Load a checkpoint from a folder or the hub; every failure is one sentence that says what to do."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput
from stakes.models import ARCHITECTURES, FAMILIES, LOADERS, REFUSED, SPLICED, load, named_object
from stakes.models.base import MAX_NEW_TOKENS
from stakes.models.embedded import SHIPPED
from stakes.vision.geometry import family as named_family

if TYPE_CHECKING:
    from stakes.models.local.stock import StockVLM
    from stakes.models.local.vlm import LocalVLM

TIMEOUT_S = 5.0  # of the first request to the hub; a slower hub is asked again with the hub's own timeout
PAUSE_S = 1.0  # a name server may miss one query
_UNREACHABLE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}


def load_local(
    name: str, device: str | None, dtype: Any, max_new_tokens: int | None, family: str | None = None
) -> LocalVLM | StockVLM:
    """Weights, tokenizer and image processor from a hub name or a folder, ready to answer."""
    try:
        import torch
        from transformers import AutoConfig, AutoModelForImageTextToText
    except ImportError as error:
        raise BadInput(
            "a model on this machine needs torch and transformers; run: pip install 'stakes[local]'"
        ) from error
    from stakes.models.local.processor import load_processor
    from stakes.models.local.spliced import SplicedVLM
    from stakes.models.local.stock import StockVLM, why_not_deletable
    from stakes.models.local.stock_processor import checkpoint_family, load_stock_processor, load_whole_processor

    if max_new_tokens is not None and max_new_tokens < 1:
        raise BadInput(f"an answer is at least one token long, not {max_new_tokens}")
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not isinstance(kind, torch.dtype):
        raise BadInput(f"{dtype!r} is not a torch dtype; give for instance 'bfloat16' or 'float32'")
    kind = kind or (torch.bfloat16 if target.type == "cuda" else torch.float32)
    _check_folder(name)
    if not Path(name).is_dir():
        ask_hub(name)
    try:
        with _quietly():
            config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise BadInput(f"no model at {name!r}: {_why(error)}") from error
    own_family = _family(name, config, family)
    spliced = config.model_type in SPLICED and why_not_deletable(config) is None
    try:
        with _quietly():
            model: Any = AutoModelForImageTextToText.from_pretrained(name, dtype=kind)
            if config.model_type in ARCHITECTURES:
                processor: Any = load_processor(name, config.image_token_id)
            else:
                processor = load_whole_processor(name, config) if spliced else load_stock_processor(name, config)
                own_family = own_family or checkpoint_family(processor, config, FAMILIES.get(config.model_type))
        model = model.to(target).eval()
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{name!r} cannot be loaded: {_why(error)}") from error
    if max_new_tokens is None:  # the embedded readers generate characters and need more tokens than a real VLM
        max_new_tokens = model.generation_config.max_new_tokens or MAX_NEW_TOKENS
    architecture: Any = SplicedVLM if spliced else StockVLM
    if config.model_type in ARCHITECTURES:
        architecture = named_object(ARCHITECTURES[config.model_type][0])
    vlm: LocalVLM | StockVLM = architecture(
        model=model, processor=processor, family=own_family, max_new_tokens=max_new_tokens
    )
    return vlm


def _family(name: str, config: Any, given: str | None) -> str | None:
    """The family that counts a checkpoint's tokens: its type's, or the one that is given; None: its processor says."""
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    kind = config.model_type
    if kind in ARCHITECTURES:
        own = ARCHITECTURES[kind][1]
        if given not in (None, own):
            raise BadInput(f"{name!r} is a {kind}, whose tokens {own} counts, not {given}; leave out --family")
        return own
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise BadInput(f"{name!r} is a {kind}, which transformers does not load as an image-text-to-text model")
    if kind in REFUSED:
        raise BadInput(f"{name!r} is a {kind}, whose visual tokens cannot be counted: {REFUSED[kind]}")
    return None if given is None else named_family(given).name


def _check_folder(name: str) -> None:
    """Refuse a folder that holds no model; a hub name has at most one slash, and begins with none."""
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"the folder {name} holds no model: it has no config.json; give the checkpoint's own folder")
    elif path.exists():
        raise BadInput(f"{name} is a file, and a model is a folder; give the one that holds its config.json")
    elif name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1:
        raise BadInput(f"there is no folder {name}; check the path, or give a name on the hub such as owner/model")
    elif "/" not in name and (near := get_close_matches(name.lower(), [*SHIPPED, *LOADERS], n=1, cutoff=0.5)):
        raise BadInput(f"no model is called {name!r}; did you mean {near[0]!r}?")


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide transformers' progress bar and the hub's message on every retry."""
    import transformers

    bars: Any = transformers.utils.logging  # its functions have no annotations
    hub = logging.getLogger("huggingface_hub")
    shown, level = bars.is_progress_bar_enabled(), hub.level
    bars.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        if shown:
            bars.enable_progress_bar()


def _why(error: Exception) -> str:
    """The first sentence of transformers' message, and what to do when it could not reach the hub."""
    text = " ".join(str(error).split())
    offline = any(word in text for word in ("connect", "offline", "internet", "resolve"))
    hint = "; there is no network and no copy here: give a folder that has the weights" if offline else ""
    return text.split(". ")[0][:300].rstrip(".") + hint


def ask_hub(name: str) -> None:
    """Announce on stderr that the hub is asked for this model, and fail now where the hub cannot be reached.

    The hub's library tries six times, with pauses of 1, 2, 4, 8 and 8 seconds, for a file that is not cached. Where the
    host has no address or refuses connections, two tries are enough. A hub that is slow, or that answers anything at
    all, is left to transformers and its retries, and so is a model that is cached.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        url = hf_hub_url(name, "config.json")
        if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
    except ValueError:  # no name that the hub could have; transformers says what is wrong with it
        return
    print(f"looking for {name} on the hub ({constants.ENDPOINT})", file=sys.stderr, flush=True)
    for last in (False, True):
        try:
            get_hf_file_metadata(url, timeout=TIMEOUT_S)
        except Exception as error:  # whichever client the hub's library uses; transformers reports other errors
            why = _unreachable(error)
            if why is None:
                return
            if last:
                raise BadInput(
                    f"no model at {name!r}: could not connect to {constants.ENDPOINT} ({why}), and there is no copy "
                    "here; give a folder that has the weights, or try again with a network"
                ) from error
        else:
            return
        time.sleep(PAUSE_S)


def _unreachable(error: BaseException) -> str | None:
    """The system's message where the host has no address or refuses connections; else None."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, socket.gaierror) or (isinstance(at, OSError) and at.errno in _UNREACHABLE):
            return at.strerror or str(at)
        at = at.__cause__ or at.__context__
    return None


def copy_of(model: Any, name: str, **options: Any) -> Callable[[], Any]:
    """A picklable function that loads the model again in another process; ``load(name, **options)`` gave ``model``.

    make = copy_of(model, "Qwen/Qwen2.5-VL-7B-Instruct")
    make()                          # there: a model of equal ``identity``
    """
    check_copied(name)
    device, dtype = getattr(model, "device", None), getattr(getattr(model, "model", None), "dtype", None)
    if device is not None and dtype is not None:
        options |= {"device": device.type, "dtype": str(dtype).removeprefix("torch.")}
    return partial(load, name, **options)


def check_copied(name: str) -> None:
    """Refuse models that workers cannot load: one behind a server, and OCR, whose page cache is in this process."""
    if name.partition(":")[0] in LOADERS:
        raise BadInput(f"{name!r} reads pages on all cores of this machine already; leave out --ray")
    if name.startswith(("http://", "https://")):
        raise BadInput(
            f"{name!r} is an address, whose server already gets many questions at once; leave out --ray, or give a "
            "model that the workers can load"
        )


def on_gpu(model: Any) -> bool:
    """Whether the model computes on a GPU."""
    return getattr(getattr(model, "device", None), "type", None) == "cuda"


@contextmanager
def off_gpu(model: Any) -> Iterator[None]:
    """Move the model to main memory for the length of the block, so that a copy of it has the GPU to itself."""
    if not on_gpu(model):
        yield
        return
    import torch

    home = model.device
    model.model.to("cpu")
    model.reset_fast_path()
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        model.model.to(home)


def threads() -> int:
    """Number of CPU threads that a model on this machine uses."""
    try:
        import torch
    except ImportError:
        return os.cpu_count() or 1
    return torch.get_num_threads()
