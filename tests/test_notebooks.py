"""Results show themselves in notebooks: as a table that escapes its text, as a chart that draws, as a frame."""

from pathlib import Path
from typing import Any

import pytest
from tests.report.runs import make_run

import stakes
from stakes import Curve, Policy, allocate
from stakes.budgets.policy import TierPlan
from stakes.errors import BadInput
from stakes.report.data import read_run
from stakes.signals import to_dict
from stakes.signals.task import TaskIdentity

HIGH = Curve([32, 304, 576], [0.9, 0.3, 0.1], 300)
COSTS = {"high": 5.0, "low": 1.0}


def _policy(tier: str, curve: Curve | None) -> Policy:
    signal = to_dict(TaskIdentity({tier: tier}, most_expensive=tier))
    return Policy(mean_budget=304, tiers={tier: TierPlan(cost=5, budget=304, curve=curve)}, signal=signal)


def shown(tmp_path: Path) -> dict[str, Any]:
    evaluation = read_run(make_run(tmp_path, COSTS, 24, seed=4)).evaluation
    return {
        "curve": HIGH,
        "allocation": allocate({"high": HIGH, "low": HIGH}, COSTS, {"high": 9, "low": 9}, 18 * 304),
        "policy": Policy.load(tmp_path / "policy.json"),
        "policy without curves": _policy("a<b", None),
        "evaluation": evaluation,
    }


@pytest.mark.parametrize("name", ["curve", "allocation", "policy", "policy without curves", "evaluation"])
def test_every_result_is_a_table_a_chart_and_a_frame(name: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    converter = pytest.importorskip("vl_convert")
    one = shown(tmp_path)[name]
    rows = one.rows()
    html = one._repr_html_()
    assert html.count("<tr>") == len(rows) + 1
    assert all(f"<th>{key}</th>" in html for key in rows[0])
    assert "<b" not in html.replace("<tbody", "").replace("&lt;b", "")
    assert one.to_frame().shape == (len(rows), len(rows[0]))
    assert isinstance(one.to_frame(), pandas.DataFrame)
    bundle = one.plot()._repr_mimebundle_()
    assert "<svg" in bundle["image/svg+xml"]
    assert converter.vegalite_to_svg(bundle["application/vnd.vegalite.v5+json"]) == bundle["image/svg+xml"]


def test_a_policy_is_saved_and_compared_as_before(tmp_path: Path) -> None:
    policy = _policy("high", HIGH)
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json") == policy
    assert Curve([32, 304, 576], [0.9, 0.3, 0.1], 300) == HIGH


def test_without_pandas_a_frame_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="pip install pandas"):
        HIGH.to_frame()


def test_dir_lists_public_names_only_with_the_packages_that_people_use() -> None:
    names = dir(stakes)
    assert {"models", "data", "calibrate", "Policy"} <= set(names)
    assert not [name for name in names if name.startswith("_") or name in ("import_module", "Any", "TYPE_CHECKING")]
    assert stakes.models.__name__ == "stakes.models"
    assert stakes.data.__name__ == "stakes.data"
