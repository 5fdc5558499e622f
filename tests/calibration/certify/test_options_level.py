"""A short run of benchmarks/escalation_certificates.py: certificates of options keep their level."""

from benchmarks.escalation_certificates import confidence_helps, nothing_helps, simulate


def test_options_that_save_nothing_rarely_ship() -> None:
    found = simulate(nothing_helps, simulations=40, documents=100)
    assert found["kept"]
    assert found["shipped"] < 0.15


def test_options_that_help_ship_and_their_bounds_hold() -> None:
    found = simulate(confidence_helps, simulations=20, documents=160)
    assert found["shipped"] > 0.9
    assert found["kept"]
