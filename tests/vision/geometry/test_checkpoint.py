"""A family from a checkpoint's own files, and one from another package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.vision.geometry.processors import model_module, sizes

from stakes import plugins
from stakes.cli import main
from stakes.errors import BadInput, UnknownFamily
from stakes.models.identity import family_parts
from stakes.vision.geometry import count_tokens, family
from stakes.vision.geometry.families import offered_families

OWN = {"patch_size": 14, "merge_size": 2}


def _save(folder: Path, images: dict[str, Any], config: dict[str, Any] | None = None, whole: Any = None) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {}))
    if whole is None:
        (folder / "preprocessor_config.json").write_text(json.dumps(images))
    else:
        (folder / "processor_config.json").write_text(json.dumps({**whole, "image_processor": images}))
    return str(folder)


@pytest.mark.parametrize("newer", [False, True])
def test_a_checkpoints_own_bounds_are_those_of_its_processor(tmp_path: Path, newer: bool) -> None:
    """Saved by transformers itself, in the file of older checkpoints and in that of newer ones."""
    processor = model_module("qwen2_vl.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil(
        size={"shortest_edge": 50176, "longest_edge": 1003520}
    )
    name = _save(tmp_path, processor.to_dict(), whole={} if newer else None)
    found = family(name)
    assert found.name == "max_pixels=1003520,merge=2,min_pixels=50176,patch=14"
    for width, height in [one for one in sizes(40, 3) if max(one) < 100 * min(one)]:
        patches = processor.get_number_of_image_patches(height, width, {})
        assert count_tokens(name, width, height) == patches // 4


@pytest.mark.parametrize(
    ("images", "config", "expected"),
    [
        (
            {"image_processor_type": "Qwen2VLImageProcessorFast", "min_pixels": 3136, "max_pixels": 999 * 784, **OWN},
            {},
            "max_pixels=783216,merge=2,min_pixels=3136,patch=14",
        ),
        (
            {"image_processor_type": "Glm4vImageProcessor", "temporal_patch_size": 2, **OWN}
            | {"size": {"shortest_edge": 12544, "longest_edge": 4000000}},
            {},
            "like=glm-4.1v,factor=28,max_pixels=2000000,min_pixels=6272",
        ),
        (
            {
                "image_processor_type": "PixtralImageProcessor",
                "size": {"longest_edge": 700},
                "patch_size": {"height": 14},
            },
            {"spatial_merge_size": 2},
            "like=pixtral,longest_edge=700,patch=28",
        ),
        (
            {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 728}}
            | {"max_image_size": {"longest_edge": 364}},
            {"scale_factor": 2, "vision_config": {"patch_size": 14}},
            "like=idefics3,longest_edge=728,per_tile=169,tile=364",
        ),
        (
            {"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 448}, "max_patches": 6},
            {"model_type": "internvl", "image_seq_length": 256},
            "per_tile=256,tile=448,tiles=6",
        ),
    ],
)
def test_other_processors_give_their_own_numbers(
    tmp_path: Path, images: dict[str, Any], config: dict[str, Any], expected: str
) -> None:
    assert family(_save(tmp_path, images, config)).name == expected


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (None, "has no preprocessor_config.json; give a checkpoint's own folder"),
        ({"image_processor_type": "MllamaImageProcessor"}, "has a MllamaImageProcessor, whose rule is not read"),
        ({"image_processor_type": "Qwen2VLImageProcessor", **OWN}, "has no usable 'min_pixels'; give the numbers"),
    ],
)
def test_a_folder_without_a_known_rule_is_refused(tmp_path: Path, images: Any, message: str) -> None:
    if images is not None:
        _save(tmp_path, images)
    with pytest.raises(UnknownFamily, match=message):
        family(str(tmp_path))


def test_a_command_takes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 100 * 784, **OWN}
    with pytest.raises(SystemExit):
        main(["tokens", "1654x2339", "--family", _save(tmp_path / "mine", images), "--json"])
    assert json.loads(capsys.readouterr().out)["native"] <= 100


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that offers families."""
    lines = ["thirds = acme_thirds:THIRDS", "nines = acme_thirds:NINES", "wrong = acme_thirds:WRONG"]
    _offer(tmp_path, "acme-thirds", *lines)
    (tmp_path / "acme_thirds.py").write_text(
        "from dataclasses import dataclass\n"
        "from stakes.vision.geometry import Family\n"
        "@dataclass(frozen=True)\n"
        "class Thirds:\n"
        "    def tokens(self, width, height):\n"
        "        return (width + height) // 3\n"
        "THIRDS = Family('thirds', Thirds(), False, None, 'acme', '2026-11-18')\n"
        "NINES = 'patch=3,merge=3,min_pixels=81,max_pixels=8100'\n"
        "WRONG = 9\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_thirds", raising=False)
    return tmp_path


def _offer(folder: Path, package: str, *lines: str) -> None:
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[stakes.families]", *lines, ""]))
    plugins._installed.cache_clear()


@pytest.mark.usefixtures("acme")
def test_another_package_offers_a_family_by_formula_or_by_description() -> None:
    assert count_tokens("thirds", 200, 100) == 100
    assert count_tokens("nines", 90, 90) == 100
    assert family("nines").name == "nines"
    parts = family_parts("thirds")
    assert (parts["family"], parts["family package"]) == ("thirds", "acme-thirds 1.0")
    assert family_parts("qwen2.5-vl") == {"family": "qwen2.5-vl"}
    with pytest.raises(UnknownFamily, match="the family wrong must be a Family or a description"):
        family("wrong")


def test_a_shipped_name_is_not_taken_over(acme: Path) -> None:
    _offer(acme, "acme-again", "qwen2.5-vl = acme_thirds:THIRDS")
    assert family("qwen2.5-vl").factor == 28
    with pytest.raises(BadInput, match="offers a family called 'qwen2.5-vl', which is the name of a shipped one"):
        offered_families()
