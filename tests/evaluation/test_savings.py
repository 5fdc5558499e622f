"""Tokens as money and time: one price and one slope, by plain arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.savings import check_price, ms_per_thousand_tokens, savings
from stakes.formats import counted, format_dollars, format_seconds
from stakes.gateway.monitoring.dashboard import worth
from stakes.gateway.monitoring.metrics import Metrics

ONE = Outcome("s", "d", "high", "resolution", None, 32, 900, 32, "x", False, 1.0, True, "value", 10.0, "run")


def test_a_million_tokens_cost_the_price() -> None:
    assert savings(1_000_000, price=0.15).dollars == pytest.approx(0.15)
    assert savings(1_000, ms_per_thousand=80).seconds == pytest.approx(0.08)
    assert (savings(5).dollars, savings(5).seconds) == (None, None)


def test_time_is_the_slope_of_the_medians_over_tokens() -> None:
    """20 ms and 0.1 ms a token, with one answer that took a second because the machine was busy."""
    log = [replace(ONE, budget=b, realised=b, ms=20 + 0.1 * b) for b in (32, 304, 576) for _ in range(5)]
    assert ms_per_thousand_tokens([*log, replace(ONE, ms=1000.0)]) == pytest.approx(100)
    assert ms_per_thousand_tokens([replace(one, ms=0.0) for one in log]) is None  # answers of OCR have no time
    assert ms_per_thousand_tokens(log[:5]) is None
    assert ms_per_thousand_tokens([replace(one, ms=9.0) for one in log]) is None


@pytest.mark.parametrize("price", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_price_is_refused(price: float) -> None:
    with pytest.raises(BadInput, match="is no price; give dollars per million input tokens, such as --price 0.15"):
        check_price(price)


def test_the_gateways_metrics_and_dashboard_count_money_and_time() -> None:
    metrics = Metrics(price=0.5, token_ms=100.0)
    metrics.count_worth("high", 4_000_000)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.render({}).decode())
        for sample in family.samples
        if sample.name.startswith("stakes_saved") and sample.name.endswith("_total")
    }
    assert found == {"stakes_saved_dollars_total": 2.0, "stakes_saved_seconds_total": 400.0}
    counts = {"tokens": [({"tier": "high", "kind": "saved"}, 4_000_000.0), ({"tier": "high", "kind": "native"}, 9.0)]}
    assert worth(counts, 0.5, 100.0) == "$2.00 at $0.5 per million and 7 min of computing at 100 ms per 1,000"
    assert worth(counts, None, None) == ""
    silent = Metrics()
    silent.count_worth("high", 10)
    assert (silent.has_worth, metrics.has_worth) == (False, True)
    assert "stakes_saved_dollars_total{" not in silent.render({}).decode()


def test_numbers_read_well() -> None:
    assert (counted(1, "document"), counted(0, "reply")) == ("1 document", "0 replies")
    assert (format_dollars(1234.5), format_dollars(0.0456), format_dollars(0)) == ("$1,234.50", "$0.0456", "$0.00")
    assert format_dollars(3.28e-5) == "less than $0.001"
    assert [format_seconds(s) for s in (0.25, 95, 400, 7260)] == ["250 ms", "95 s", "7 min", "2.0 h"]
