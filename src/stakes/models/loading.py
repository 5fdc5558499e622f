"""How does a checkpoint become a model, or one sentence that says why not?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput
from stakes.models import ARCHITECTURES
from stakes.models.base import MAX_NEW_TOKENS
from stakes.models.reader import SHIPPED

if TYPE_CHECKING:
    from stakes.models.local import LocalVLM


def load_local(name: str, device: str | None, dtype: Any, max_new_tokens: int | None) -> LocalVLM:
    """Weights, tokenizer and image processor from a hub name or a folder, ready to answer."""
    try:
        import torch
        from transformers import AutoConfig, AutoModelForImageTextToText
    except ImportError as error:
        raise BadInput(
            "a model on this machine needs torch and transformers; run: pip install 'stakes[local]'"
        ) from error
    from stakes.models.hub import ask_hub
    from stakes.models.processing import load_processor

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
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise BadInput(f"{name!r} is a {config.model_type}, whose tokens stakes cannot delete; it knows {known}")
    module, attribute, family = ARCHITECTURES[config.model_type]
    try:
        with _quietly():
            model: Any = AutoModelForImageTextToText.from_pretrained(name, dtype=kind)
            processor = load_processor(name, config.image_token_id)
        model = model.to(target).eval()
    except (OSError, ValueError) as error:
        raise BadInput(f"{name!r} cannot be loaded: {_why(error)}") from error
    if max_new_tokens is None:  # a reader of characters needs more of them than a real VLM needs words
        max_new_tokens = model.generation_config.max_new_tokens or MAX_NEW_TOKENS
    cls = getattr(import_module(module), attribute)
    made: LocalVLM = cls(model=model, processor=processor, family=family, max_new_tokens=max_new_tokens)
    return made


def _check_folder(name: str) -> None:
    """Say of a folder in our own words what is not there; a hub's name has at most one slash, and begins with none."""
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"the folder {name} holds no model: it has no config.json; give the checkpoint's own folder")
    elif path.exists():
        raise BadInput(f"{name} is a file, and a model is a folder; give the one that holds its config.json")
    elif name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1:
        raise BadInput(f"there is no folder {name}; check the path, or give a name on the hub such as owner/model")
    elif "/" not in name and (near := get_close_matches(name.lower(), [*SHIPPED, "ocr"], n=1, cutoff=0.5)):
        raise BadInput(f"no model is called {name!r}; did you mean {near[0]!r}?")


@contextmanager
def _quietly() -> Iterator[None]:
    """Loading without transformers' progress bar and the hub's word on every retry, among a command's own lines."""
    import transformers

    bars: Any = transformers.utils.logging  # its functions have no annotations
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        if shown:
            bars.enable_progress_bar()


def _why(error: Exception) -> str:
    """The first sentence of what transformers said, and what to do when it could not reach the hub."""
    text = " ".join(str(error).split())
    offline = any(word in text for word in ("connect", "offline", "internet", "resolve"))
    hint = "; there is no network and no copy here: give a folder that has the weights" if offline else ""
    return text.split(". ")[0][:300].rstrip(".") + hint
