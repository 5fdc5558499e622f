"""Pages of PDFs are drawn without their margins where the policy trims."""

import httpx
import numpy as np
from PIL import Image
from tests.gateway.gateways import gateway, policy
from tests.gateway.pdfs import scan_pdf, text_pdf
from tests.gateway.test_pdf import asked, file_part
from tests.gateway.upstream import Upstream, image_sizes

from stakes.gateway.pdf.renderer import PdfRenderer
from stakes.gateway.settings import Limits


def test_a_page_is_drawn_without_its_margins_where_the_policy_trims(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(trim=True, burst=4000), pdf="render") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(file_part(scan_pdf())))
    renderer = PdfRenderer(Limits())
    try:
        (scan,) = renderer.pages(scan_pdf(), "1", 50)
        whole = scan.draw(scan.width // 2, scan.height // 2)
        x0, y0, x1, y1 = scan.margins()
        assert (0, 0, scan.width, scan.height) != (x0, y0, x1, y1)
        assert reply.headers["x-stakes-box"] == f"{x0}:{y0}:{x1}:{y1}"
        ((width, height),) = image_sizes(upstream.last.json)
        assert reply.headers["x-stakes-scale"] == f"{width / (x1 - x0):.4f}x{height / (y1 - y0):.4f}"
        drawn = np.asarray(scan.draw(width, height, (x0, y0, x1, y1)).convert("L")).astype(float)
        cut = whole.resize((width, height), Image.Resampling.LANCZOS, (x0 / 2, y0 / 2, x1 / 2, y1 / 2))
        assert abs(drawn - np.asarray(cut.convert("L"))).mean() < 4  # the same part, drawn and cut out
        outside = np.asarray(whole.convert("L")) < 128
        outside[y0 // 2 : y1 // 2, x0 // 2 : x1 // 2] = False
        assert not outside.any()
    finally:
        renderer.close()


def test_a_page_is_whole_where_what_is_left_is_too_thin_for_the_budget(upstream: Upstream, http: httpx.Client) -> None:
    """As an image is: GLM's 16 tokens show a whole page, and no strip of it."""
    tiers = {"high": {"cost": 5, "budget": 16}, "low": {"cost": 1, "budget": 16}}
    rules = policy(trim=True, family="glm-4.5v", mean_budget=16, tiers=tiers)
    column = b"0 0 0 rg 230 10 133 822 re f"
    with gateway(upstream.url, rules, pdf="render") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(file_part(text_pdf(content=column))))
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-stakes-box"] == "0:0:1653:2339"
