"""Statistics of a page follow its print and its size, and are the same for the same pixels."""

import io

from PIL import Image, ImageDraw

from stakes.data.synthetic import draw
from stakes.vision.image.decode import open_image
from stakes.vision.image.statistics import STATISTICS, page_statistics


def _printed(step: int) -> Image.Image:
    """Black lines of half a step, a step apart."""
    image = Image.new("RGB", (512, 512), "white")
    pen = ImageDraw.Draw(image)
    for y in range(0, 512, step):
        pen.rectangle((0, y, 511, y + step // 2 - 1), "black")
    return image


def test_fine_print_loses_its_variance_at_the_first_halvings_and_large_print_keeps_it() -> None:
    fine, large = (dict(zip(STATISTICS, page_statistics(_printed(step)), strict=True)) for step in (2, 32))
    assert fine["detail 1"] < -5 < -0.1 < large["detail 1"]
    assert large["detail 5"] < -5
    assert fine["ink"] == large["ink"] == 0.5


def test_a_file_and_its_pixels_have_the_same_statistics() -> None:
    image, file = draw("forms", 3, "test").image, io.BytesIO()
    image.save(file, "PNG")
    assert page_statistics(open_image(file.getvalue())) == page_statistics(image)


def test_a_blank_or_tiny_image_has_finite_statistics() -> None:
    for size in ((1, 1), (3, 400)):
        assert page_statistics(Image.new("RGB", size, "white"))[2:] == (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
