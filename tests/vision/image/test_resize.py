"""A fitted image keeps its pixels where it can, is averaged where it shrinks, and shortcuts in decoding keep 40 dB."""

import dataclasses
import importlib
import io
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageDraw, ImageFilter, ImageFont
from tests.vision.image.image_files import same

from stakes.vision.geometry import count_tokens, family
from stakes.vision.image.decode import Picture
from stakes.vision.image.resize import fit

FACTOR_FAMILIES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl")


@cache
def page(width: int, height: int, seed: int = 0) -> Image.Image:
    """Paper with a grain, lines of text in several sizes, rules and coloured boxes."""
    generator = random.Random(seed)
    image = Image.new("RGB", (width, height), (252, 251, 248))
    draw = ImageDraw.Draw(image)
    margin, y = width // 16, height // 20
    while y < height * 0.94:
        size = generator.choice([28, 34, 40, 40, 44, 60, 90])
        words = " ".join("".join(generator.choices("abcdefghijklmnopqrstuvwxyz0123456789$.,", k=6)) for _ in range(40))
        ink = (
            (generator.randint(0, 60),) * 3
            if generator.random() < 0.8
            else (generator.randint(0, 200), 30, generator.randint(0, 200))
        )
        draw.text((margin, y), words[: int((width - 2 * margin) / size / 0.55)], ink, ImageFont.load_default(size))
        y += int(size * generator.uniform(1.2, 1.8))
        if generator.random() < 0.1:
            fill = tuple(generator.randint(120, 255) for _ in range(3))
            draw.rectangle((margin, y, width - margin, y + 120), fill=fill, outline="black", width=3)
            y += 140
    grain = np.random.default_rng(seed).normal(0, 3, (height, width, 1))
    return Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def psnr(one: Image.Image, other: Image.Image) -> float:
    difference = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    return 10 * math.log10(255**2 / max(float((difference**2).mean()), 1e-9))


def test_a_fitted_image_states_its_tokens_and_scale() -> None:
    fitted = fit(page(600, 800), 96)
    assert fitted.image.mode == "RGB"
    assert fitted.image.width * fitted.image.height == fitted.tokens * 784
    assert fitted.native == count_tokens("qwen2.5-vl", 600, 800)
    assert fitted.scale == (fitted.image.width / 600, fitted.image.height / 800)
    assert fitted.stretch == pytest.approx(max(fitted.scale) / min(fitted.scale) - 1)
    assert 0 < fitted.stretch <= 0.15
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.tokens = 1  # type: ignore[misc]


def test_an_image_of_the_right_size_is_not_resampled() -> None:
    exact = page(280, 560)
    assert same(fit(exact, 200).image, exact)
    assert same(fit(page(333, 222), 5000, "claude").image, page(333, 222))


def test_bytes_path_and_pillow_give_the_same(tmp_path: Path) -> None:
    out = io.BytesIO()
    page(900, 700).save(out, "PNG")
    (tmp_path / "a.png").write_bytes(out.getvalue())
    results = [fit(s, 96).image for s in (page(900, 700), out.getvalue(), tmp_path / "a.png", str(tmp_path / "a.png"))]
    assert all(same(result, results[0]) for result in results)


def test_gray_pages_look_like_their_rgb() -> None:
    grey = page(900, 700).convert("L")
    assert psnr(fit(grey, 96).image, fit(grey.convert("RGB"), 96).image) > 44


def test_fine_detail_is_averaged_not_skipped() -> None:
    """A one-pixel chessboard is grey from afar; without antialiasing it would be black, white or moiré."""
    board = Image.fromarray((np.indices((1120, 1120)).sum(axis=0) % 2 * 255).astype(np.uint8))
    pixels = np.asarray(fit(board, 64).image)[4:-4, 4:-4]
    assert pixels.min() > 115
    assert pixels.max() < 140


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_a_rotated_jpeg_is_sized_upright_at_full_and_at_reduced_decoding(orientation: int) -> None:
    upright = page(701, 1003)
    undo = {3: 3, 6: 2, 7: 6}  # Image.Transpose
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data = jpeg(stored, exif=exif, quality=95)
    for budget in (12, 300):
        fitted, expected = fit(data, budget), fit(upright, budget)
        assert (fitted.image.size, fitted.native, fitted.scale) == (
            expected.image.size,
            expected.native,
            expected.scale,
        )
        assert psnr(fitted.image, expected.image) > 38


@pytest.mark.parametrize(
    ("at_least", "decoded"),
    [((2000, 2000), (2500, 3300)), ((1251, 100), (2500, 3300)), ((1250, 1650), (1250, 1650)), ((100, 1), (625, 825))],
)
def test_a_jpeg_is_decoded_at_the_smallest_sufficient_size(at_least: tuple[int, int], decoded: tuple[int, int]) -> None:
    data = jpeg(Image.new("L", (2500, 3300), 200))
    pixels, box = Picture(data).pixels(at_least)
    assert pixels.size == decoded
    assert box == (0, 0, *decoded)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    lying, _ = Picture(jpeg(Image.new("L", (3300, 2500), 200), exif=exif)).pixels(at_least)
    assert lying.size == (decoded[1], decoded[0])
    odd, box = Picture(jpeg(Image.new("L", (801, 403)))).pixels((1, 1))
    assert (odd.size, box) == ((201, 101), (0, 0, 200.25, 100.75))


@pytest.mark.parametrize("options", [{"quality": 75}, {"quality": 95, "subsampling": 0}, {"progressive": True}])
@pytest.mark.parametrize("size", [(2500, 3300), (1701, 1203)])
def test_reduced_decoding_stays_within_40_db_of_full_decoding(size: tuple[int, int], options: dict[str, Any]) -> None:
    data = jpeg(page(*size), **options)
    full = Image.open(io.BytesIO(data)).convert("RGB")
    for budget in (32, 96, 304):
        fitted = fit(data, budget)
        assert psnr(fitted.image, full.resize(fitted.image.size, Image.Resampling.BICUBIC)) >= 40


def test_a_photograph_is_decoded_smaller_than_a_scan_and_stays_within_40_db() -> None:
    blurred = page(1500, 2000).resize((3000, 4000), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(0.5))
    exposure = Image.Exif()
    exposure.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ExposureTime] = 1 / 60
    photograph, scan = jpeg(blurred, quality=92, exif=exposure), jpeg(blurred, quality=92)
    assert (Picture(photograph).photographed, Picture(scan).photographed) == (True, False)
    full = Image.open(io.BytesIO(scan)).convert("RGB")
    assert fit(photograph, 304).tokens == fit(scan, 304).tokens == 300
    plain = full.resize(fit(scan, 304).image.size, Image.Resampling.BICUBIC)
    assert 40 <= psnr(fit(photograph, 304).image, plain) < psnr(fit(scan, 304).image, plain)
    assert not Picture(jpeg(blurred.resize((300, 400)), exif=b"Exif\0\0II*\0broken")).photographed


def test_real_pages_stay_within_40_db_of_full_decoding(real_data: Path) -> None:
    files = sorted(real_data.glob("*/images/*.jp*g"))[::6]
    assert files
    for path in files:
        full = Image.open(path).convert("RGB")
        for budget in (32, 64, 96, 304):
            fitted = fit(path, budget)
            assert psnr(fitted.image, full.resize(fitted.image.size, Image.Resampling.BICUBIC)) >= 40, path.name


@pytest.mark.parametrize("name", FACTOR_FAMILIES)
def test_the_real_processor_counts_what_fit_predicted_and_resamples_nothing(name: str) -> None:
    pytest.importorskip("transformers")
    module = importlib.import_module("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    known = family(name)
    processor = module.Qwen2VLImageProcessorPil(
        patch_size=(known.factor or 0) // 2,
        size={"shortest_edge": known.min_pixels, "longest_edge": known.max_pixels},
        do_normalize=False,
        do_rescale=False,
    )
    generator = random.Random(3)
    for _ in range(12):
        image = page(generator.randint(300, 1400), generator.randint(300, 1400), seed=generator.randint(0, 99))
        fitted = fit(image, generator.randint(80, 700), name)
        out = processor(images=[fitted.image], return_tensors="np")
        assert int(out["image_grid_thw"].prod()) // 4 == fitted.tokens
        # The same pixels in another order, each of them twice (one image stands for two frames).
        theirs = np.sort(np.asarray(out["pixel_values"]).ravel())
        assert np.array_equal(theirs, np.sort(np.tile(np.asarray(fitted.image).ravel(), 2)))
