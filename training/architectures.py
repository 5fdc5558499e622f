"""Which architecture is trained? What differs between the two; pages, questions, losses and the loop are shared.

kind = of("llava")                 # by size, or by model: of(model)
model = start("llava", init=Path("src/stakes/models/weights/reader"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training.forward import FastForward
from training.forward_llava import LlavaForward
from training.pool import CROPS
from transformers import AutoConfig, AutoModelForImageTextToText

from training import reader, reader_llava


@dataclass(frozen=True)
class Architecture:
    """A reader's module, the stock class that it trains, and the fast forward over it."""

    model_type: str
    sizes: tuple[str, ...]
    new_model: Callable[[str], nn.Module]
    forward: type[FastForward]
    save: Callable[[Any, str], None]
    crops: dict[str, tuple[int, int]]  # windows of pages for the first levels, (width, height)


QWEN = Architecture("qwen2_5_vl", tuple(reader.SIZES), reader.new_model, FastForward, reader.save, CROPS)
LLAVA = Architecture(
    "llava_onevision",
    tuple(reader_llava.SIZES),
    reader_llava.new_model,
    LlavaForward,
    reader_llava.save,
    reader_llava.CROPS,
)
SIZES = (*QWEN.sizes, *LLAVA.sizes)


def of(what: str | nn.Module) -> Architecture:
    """The architecture of a size's name or of a model."""
    if isinstance(what, str):
        return LLAVA if what in LLAVA.sizes else QWEN
    return LLAVA if what.config.model_type == LLAVA.model_type else QWEN


def load(folder: Path, dtype: torch.dtype, window: int | None = None) -> nn.Module:
    """A saved reader of either architecture; ``window`` changes the Qwen encoder's window, in pixels."""
    config = AutoConfig.from_pretrained(folder)
    if window:
        config.vision_config.window_size = window
    model = AutoModelForImageTextToText.from_pretrained(folder, config=config, dtype=dtype)
    return reader_llava.freeze(model) if of(model) is LLAVA else model


def start(size: str, init: Path | None = None, window: int | None = None) -> nn.Module:
    """A model of this size in fp32: new, from a saved one, or (LLaVA) with a Qwen reader's language model."""
    if init is None:
        return of(size).new_model(size)
    if AutoConfig.from_pretrained(init).model_type == of(size).model_type:
        return load(init, torch.float32, window)
    if of(size) is not LLAVA:
        raise ValueError(f"{init} is no {QWEN.model_type}, and only the LLaVA reader starts from another architecture")
    model = of(size).new_model(size)
    reader_llava.adopt(model, init)
    return model
