"""Who answers which questions, and where are the answers kept? What every measured table starts from.

    study = Study(load("embedded"), "embedded", Path("runs/reproduce"), per_tier=300)
    asked = study.questions("forms")
    found = study.arms("forms", asked, {"high": 512, "low": 96}, {"high": 5, "low": 1})

Answers are logged per data set, mechanism and selector, and every (question, budget) is answered once, whichever tables
ask for it: the frontier's 13 budgets serve the arms, the metrics and the map. Stop it anywhere and start it again.

A source is a family of synthetic pages (``forms``), a set of the hub by the paper's protocol (``hub:docvqa``, or
``hub:docvqa:FOLDER`` for a local parquet copy), or a samples file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.arms.comparison import Comparison, Ledger, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, plan_arms
from stakes.data import synthetic as pages
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked, ask, ask_pages
from stakes.evaluation.layered import layered
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Key, Lanes, run
from stakes.models.base import VLM, Mechanism
from stakes.models.identity import family_of
from stakes.signals import Judge, KeywordRule, Signal, to_dict

# the paper's data sets and the synthetic families that stand for them
OFFLINE = {
    "docvqa": "forms",
    "chartqa": "charts",
    "infographicvqa": "infographics",
    "textvqa": "signs",
    "vqav2": "shapes",
    "solid_color": "swatches",
}


@dataclass(frozen=True)
class Arms:
    """Arms of one total: the comparison, what each asked, and every answer."""

    comparison: Comparison
    plan: ArmPlan
    outcomes: Mapping[str, Sequence[Outcome]]
    deviation: float
    """The largest relative difference between two arms' realised totals, in what the plan says is ``counted``."""


@dataclass(frozen=True)
class Study:
    """A model, a number of questions of each tier, and a folder of logs."""

    model: VLM
    name: str
    folder: Path
    per_tier: int = 300
    mechanism: Mechanism = "deletion"
    metric: str = "relaxed"
    data: Mapping[str, str] = field(default_factory=dict)
    """What stands for one of the paper's data sets; the synthetic family (``OFFLINE``) where nothing is named."""
    split: str = "test"
    signal: Signal | None = None
    """How tiers are read; None takes the samples' own labels."""
    selectors: tuple[str, ...] = ()
    """Those that the table of selectors sets side by side; the paper's where none is named."""
    progress: Progress | None = None
    judge: Judge | None = None
    """Whose view of the labels is compared, where there is one."""

    def source(self, dataset: str) -> str:
        """What stands for one of the paper's data sets."""
        return self.data.get(dataset, OFFLINE.get(dataset, dataset))

    def questions(self, source: str, per_tier: int | None = None) -> list[Asked]:
        """``per_tier`` questions of each tier, the same ones every time."""
        count = self.per_tier if per_tier is None else per_tier
        if source in pages.FAMILIES:
            return ask_pages(source, self.split, count, self.signal)
        from stakes.data.sample import read_samples

        path = self._fetched(source.removeprefix("hub:"), count) if source.startswith("hub:") else Path(source)
        if path.is_file():
            return first_of_each_tier(ask(read_samples(path), path.parent, self.signal or KeywordRule()), count)
        raise BadInput(f"no data is called {source!r}; give one of {', '.join(pages.FAMILIES)}, or a samples file")

    def _fetched(self, source: str, count: int) -> Path:
        """The samples file of a set of the hub, taken once and kept beside the logs."""
        from stakes.data.hub import scan, write
        from stakes.data.sight import sight

        name, _, place = source.partition(":")
        folder = self.folder / "data" / f"{name}-{count}"
        if not (folder / "samples.jsonl").exists():
            parquet = Path(place) if place else None
            write(scan(name, sight(family_of(self.model)), per_tier=count, parquet=parquet), folder)
        return folder / "samples.jsonl"

    def answers(
        self, source: str, asked: Sequence[Asked], lanes: Lanes, setting: Setting | None = None
    ) -> Mapping[Key, Outcome]:
        """Every question at every budget that a lane gives it."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        log = self.log(source, asked, setting)
        other = "give another --folder"
        return run(self.model, asked, lanes, setting, log, progress=self.progress, elsewhere=other).outcomes

    def log(self, source: str, asked: Sequence[Asked], setting: Setting) -> Path:
        """Where the answers to these questions stand."""
        parts = [self.name, source, len(asked), setting.mechanism, setting.selector, setting.metric]
        name = "-".join(str(part) for part in parts if part)
        safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{safe}.jsonl"

    def arms(
        self,
        source: str,
        asked: Sequence[Asked],
        budgets: Mapping[str, int],
        costs: Mapping[str, float],
        names: Sequence[str] = ARMS,
        setting: Setting | None = None,
    ) -> Arms:
        """The arms at the total of ``budgets``, answered and compared."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        policy = fixed_policy(family_of(self.model), setting.mechanism, budgets, costs, [one.tier for one in asked])
        plan = plan_arms(asked, policy, self.model, setting.mechanism, names, layered(self.model, setting))
        found = self.answers(source, asked, list(plan.budgets.values()), setting)
        outcomes = {
            arm: [found[one.id, budget] for one, budget in zip(asked, row, strict=True)]
            for arm, row in plan.budgets.items()
        }
        native = [outcome.native for outcome in outcomes["uniform"]]
        ledger = Ledger(plan.samples, native, plan.mechanism, plan.rounding or 0.0)
        deviation = ledger.check_realised({arm: [o.spent for o in rows] for arm, rows in outcomes.items()})
        return Arms(compare(outcomes, costs), plan, outcomes, deviation)


def first_of_each_tier(asked: Sequence[Asked], count: int) -> list[Asked]:
    """The first ``count`` questions of each tier, in the file's order."""
    seen: dict[str, int] = {}
    kept = []
    for one in asked:
        seen[one.tier] = seen.get(one.tier, 0) + 1
        if seen[one.tier] <= count:
            kept.append(one)
    return kept


def fixed_policy(
    family: str, mechanism: str, budgets: Mapping[str, int], costs: Mapping[str, float], tiers: Sequence[str]
) -> Policy:
    """Budgets that were specified beforehand, as a policy: no curve stands behind them."""
    mean = sum(budgets[tier] for tier in tiers) // len(tiers)
    return Policy(
        family=family,
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        mean_budget=mean,
        floor=1,
        tiers={tier: TierPlan(cost=costs[tier], budget=budgets[tier]) for tier in budgets},
        signal=to_dict(KeywordRule()),
        fingerprint="specified beforehand",
    )
