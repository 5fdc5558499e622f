"""How does another process get the very same model? By loading it again: same name, kind of device, dtype and length.

make = copy_of(model, "Qwen/Qwen2.5-VL-7B-Instruct")        # small enough to be sent anywhere
make()                                                      # there: a model of equal ``identity``
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stakes.errors import BadInput
from stakes.models import load


@dataclass(frozen=True)
class Copy:
    """What ``load`` is to be given; called, it loads."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        """The model, here."""
        return load(self.name, **self.options)


def copy_of(model: Any, name: str, **options: Any) -> Copy:
    """A copy of a loaded ``model``, which ``load(name, **options)`` gave."""
    check_copied(name)
    device, dtype = getattr(model, "device", None), getattr(getattr(model, "model", None), "dtype", None)
    if device is not None and dtype is not None:
        options |= {"device": device.type, "dtype": str(dtype).removeprefix("torch.")}
    return Copy(name, options)


def check_copied(name: str) -> None:
    """A model behind a server is not here to be copied, and the OCR one has found its places in this process only."""
    if name.partition(":")[0] == "ocr":
        raise BadInput(f"{name!r} reads pages on all cores of this machine already; leave out --ray")
    if name.startswith(("http://", "https://")):
        raise BadInput(
            f"{name!r} is an address, whose server is asked many questions at once already; leave out --ray, or give a "
            "model that the workers can load"
        )


def on_gpu(model: Any) -> bool:
    """Whether the model computes on a GPU."""
    return getattr(getattr(model, "device", None), "type", None) == "cuda"


@contextmanager
def off_gpu(model: Any) -> Iterator[None]:
    """The model waits in main memory, so that a copy of it has the GPU to itself."""
    if not on_gpu(model):
        yield
        return
    import torch

    home = model.device
    model.model.to("cpu")
    model.forget_fast_path()
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        model.model.to(home)


def threads() -> int:
    """How many threads a model on this machine's CPU computes with."""
    try:
        import torch
    except ImportError:
        return os.cpu_count() or 1
    return torch.get_num_threads()
