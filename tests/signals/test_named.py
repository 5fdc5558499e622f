"""Signals by name, and signals of other packages: an entry point, or ``module:Class``."""

import sys
from pathlib import Path

import pytest

from stakes import BadInput, Policy
from stakes.budgets.policy import TierPlan
from stakes.signals import KeywordRule, RequestSignal, TaskIdentity, from_dict, to_dict
from stakes.signals.named import named_signal

COSTS = {"low": 1.0, "high": 5.0}
PLUGIN = '''
from stakes.signals import Reading

class Urgent:
    """High where the text shouts."""

    def __init__(self, tiers):
        self.tiers = tiers

    def __call__(self, prompt, task=None):
        text = prompt if isinstance(prompt, str) else prompt.question
        return Reading(self.tiers[0] if text.isupper() else self.tiers[-1], 1.0, "capitals")

class Wrong(Urgent):
    def __call__(self, prompt, task=None):
        return "high"

def broken(tiers):
    raise RuntimeError("no model")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package with one entry point, ``urgent``."""
    (tmp_path / "urgent_signal.py").write_text(PLUGIN)
    info = tmp_path / "urgent_signal-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: urgent-signal\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stakes.signals]\nurgent = urgent_signal:Urgent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "urgent_signal", raising=False)
    return "urgent_signal"


def test_the_names_of_signals() -> None:
    assert isinstance(named_signal("requests", COSTS), RequestSignal)
    assert isinstance(named_signal("keywords", COSTS), KeywordRule)
    assert isinstance(named_signal("task:a=high,b=low", COSTS), TaskIdentity)
    assert named_signal("requests", COSTS).tiers == ("high", "low")
    assert named_signal("requests", COSTS, "low")("zxcv").tier == "low"


def test_a_file_of_fields(tmp_path: Path) -> None:
    file = tmp_path / "fields.toml"
    file.write_text(
        'undecided = "date"\nlow = ["mood board"]\nremove = ["iban"]\n[fields]\n"total*" = "total"\ndate = "date"\n'
    )
    signal = named_signal(f"requests:{file}", {"date": 5, "total": 20, "rest": 1})
    assert signal.tiers == ("total", "date", "rest")
    assert [signal(text).tier for text in ("Totals?", "Which date?", "the mood board", "zxcv")] == [
        "total", "date", "rest", "date",
    ]  # fmt: skip
    assert from_dict(to_dict(signal))("Totals?") == signal("Totals?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fields]\ntotal = 'gold'\n", "'gold'; the tiers are high, low"),
        ("hgih = ['x']\n", "unknown key 'hgih'"),
        ("high = 'x'\n", "must be a list of text"),
        ("remove = 'iban'\n", "remove must be a list of terms"),
        ("high = ['?!']\n", "holds no word"),
        ("high = [", "not a TOML file"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "fields.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match="fields.toml") as caught:
        named_signal(f"requests:{file}", COSTS)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["urgent", "urgent_signal:Urgent"])
def test_a_plugin_reads_tiers(name: str, package: str) -> None:
    signal = named_signal(name, COSTS)
    assert (signal("TOTAL NOW").tier, signal("total").tier) == ("high", "low")


def test_a_policy_names_an_entry_point_but_never_imports_a_module(package: str) -> None:
    tiers = {"high": TierPlan(cost=5, budget=256), "low": TierPlan(cost=1, budget=64)}
    installed = Policy(mean_budget=160, tiers=tiers, signal=to_dict(named_signal("urgent", COSTS)))
    assert installed.decide("TOTAL").tier == "high"
    named = named_signal("urgent_signal:Urgent", COSTS)
    del sys.modules[package]
    with pytest.raises(BadInput, match="which no installed package offers"):
        from_dict(to_dict(named))
    record = Policy(mean_budget=160, tiers=tiers, signal=to_dict(named))
    assert package not in sys.modules
    with pytest.raises(BadInput, match="plugin"):
        record.decide("TOTAL")
    record.use(named)
    assert record.decide("TOTAL").tier == "high"


def test_a_plugin_that_returns_something_else_is_an_error(package: str) -> None:
    with pytest.raises(BadInput, match="must return a Reading of high, low"):
        named_signal("urgent_signal:Wrong", COSTS)("x")
    with pytest.raises(BadInput, match="RuntimeError: no model"):
        named_signal("urgent_signal:broken", COSTS)


@pytest.mark.parametrize("word", ["", "nothing", "no-such-module:Class", "keywords:"])
def test_an_unknown_name_lists_the_known_ones(word: str, package: str) -> None:
    with pytest.raises(BadInput, match="requests, requests:FILE, keywords"):
        named_signal(word, COSTS)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "no.such.module:Class",
            r"the signal no.such.module:Class cannot be imported \(No module named 'no'\); install",
        ),
        ("urgent_signal:Missing", "urgent_signal has no 'Missing', which the signal urgent_signal:Missing names"),
        ("os:nothing", "os has no 'nothing'"),
    ],
)
def test_a_class_that_is_not_there_is_named(word: str, message: str, package: str) -> None:
    with pytest.raises(BadInput, match=message):
        named_signal(word, COSTS)


def test_a_policy_knows_the_package_of_its_signal_and_notices_another(package: str, tmp_path: Path) -> None:
    tiers = {"high": TierPlan(cost=5, budget=256), "low": TierPlan(cost=1, budget=64)}
    record = to_dict(named_signal("urgent", COSTS))
    assert record["package"] == "urgent-signal 1.0"
    policy = Policy(mean_budget=160, tiers=tiers, signal=record)
    assert not policy.reads_otherwise
    older = {key: value for key, value in record.items() if key not in ("package", "source")}
    assert not Policy(mean_budget=160, tiers=tiers, signal=older).reads_otherwise  # it does not say
    (tmp_path / "urgent_signal.py").write_text(PLUGIN + "# changed\n")
    assert Policy(mean_budget=160, tiers=tiers, signal=record).reads_otherwise


def test_a_plugin_with_the_name_of_a_shipped_signal_is_refused(package: str, tmp_path: Path) -> None:
    from stakes import plugins

    (tmp_path / "urgent_signal-1.0.dist-info" / "entry_points.txt").write_text(
        "[stakes.signals]\nkeywords = urgent_signal:Urgent\n"
    )
    plugins._installed.cache_clear()
    with pytest.raises(BadInput, match="offers a signal called 'keywords', which is the name of a shipped one"):
        named_signal("keywords", COSTS)


def test_undecided_belongs_to_the_signal_for_requests() -> None:
    with pytest.raises(BadInput, match="--undecided is for the signal requests"):
        named_signal("keywords", COSTS, "low")
