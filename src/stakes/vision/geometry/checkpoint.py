"""The family that a checkpoint's own files describe: the numbers of its image processor, as a family's description.

    described("my-qwen")       # 'patch=14,merge=2,min_pixels=3136,max_pixels=1003520'
    family("my-qwen")          # the same, wherever a family is named

A published checkpoint often differs from its class in these numbers, and a fine-tuned one from the published. Only JSON
is read: config.json, preprocessor_config.json and processor_config.json, which newer checkpoints have instead.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stakes.errors import UnknownFamily

# image processor -> the family whose rule it follows with numbers of its own; "" is Qwen-VL's, which has no other
_FACTOR = {
    "Qwen2VLImageProcessor": "",
    "VideoLlama3ImageProcessor": "",
    "PaddleOCRVLImageProcessor": "paddleocr-vl",
    "Glm4vImageProcessor": "glm-4.1v",
    "Glm46VImageProcessor": "glm-4.6v",
}
KNOWN = (*_FACTOR, "PixtralImageProcessor", "Idefics3ImageProcessor", "SmolVLMImageProcessor", "GotOcr2ImageProcessor")


def described(folder: str | Path) -> str:
    """The description of the family of the checkpoint in this folder."""
    at = Path(folder)
    whole = _json(at / "processor_config.json")
    images = _json(at / "preprocessor_config.json") or whole.get("image_processor") or {}
    if not images:
        raise UnknownFamily(f"the folder {folder} has no preprocessor_config.json; give a checkpoint's own folder")
    try:
        found = description(images, whole, _json(at / "config.json"))
    except (KeyError, TypeError) as error:
        raise UnknownFamily(f"{folder}: its image processor's file has no usable {error}; give the numbers") from error
    if found is None:
        raise UnknownFamily(
            f"{folder} has a {images.get('image_processor_type')}, whose rule is not read from files; name its family "
            f"(stakes families). Those that are: {', '.join(KNOWN)}"
        )
    return found


def description(images: Mapping[str, Any], whole: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """The same from the contents of the files; None where the image processor has another rule."""
    kind = str(images.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
    if kind in _FACTOR:
        return _factor(_FACTOR[kind], images)
    size = images.get("size") or {}
    if kind == "PixtralImageProcessor" and config.get("model_type") != "lighton_ocr":
        patch = images["patch_size"]
        side = patch["height"] if isinstance(patch, Mapping) else patch
        merge = config.get("spatial_merge_size") or whole.get("spatial_merge_size") or 1
        return f"like=pixtral,longest_edge={size['longest_edge']},patch={side * merge}"
    if kind in ("Idefics3ImageProcessor", "SmolVLMImageProcessor"):
        tile = images["max_image_size"]["longest_edge"]
        vision = config.get("vision_config", {})
        side = tile // vision["patch_size"] // config.get("scale_factor", 2) if "patch_size" in vision else 0
        per_tile = whole.get("image_seq_len") or side**2
        return f"like=idefics3,longest_edge={size['longest_edge']},per_tile={per_tile},tile={tile}"
    if kind == "GotOcr2ImageProcessor" and (per_tile := _per_tile(config)):
        return f"tile={size['height']},tiles={images['max_patches']},per_tile={per_tile}"
    return None


def _per_tile(config: Mapping[str, Any]) -> int | None:
    """Of the types that cut an image into tiles as InternVL does, whatever the image processor's own default is."""
    if config.get("model_type") in ("internvl", "qianfan_ocr"):
        return int(config["image_seq_length"])
    if config.get("model_type") == "aya_vision":
        vision = config["vision_config"]
        return int(vision["image_size"] // vision["patch_size"] // config["downsample_factor"]) ** 2
    return None


def _factor(rule: str, images: Mapping[str, Any]) -> str:
    size = images.get("size") or {}
    least = size.get("shortest_edge") or images["min_pixels"]
    most = size.get("longest_edge") or images["max_pixels"]
    patch, merge = images["patch_size"], images["merge_size"]
    if not rule:
        return f"patch={patch},merge={merge},min_pixels={least},max_pixels={most}"
    if rule.startswith("glm"):  # it counts an image as two frames
        least, most = (area // images["temporal_patch_size"] for area in (least, most))
    return f"like={rule},factor={patch * merge},min_pixels={least},max_pixels={most}"


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnknownFamily(f"{path} cannot be read as JSON ({error})") from error
    return content if isinstance(content, dict) else {}
