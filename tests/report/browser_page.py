"""What the browser tests of the report share: costs of the run, and the allocation that the page shows."""

import json
from typing import Any

COSTS = {"high": 5.0, "low": 1.0}


def allocation(page: Any) -> tuple[dict[str, int], float]:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return json.loads(page.evaluate("document.body.dataset.budgets")), float(page.evaluate("document.body.dataset.cwe"))
