"""Answers that are all known, question by question: simulated, or from a complete log. Adaptive sampling asks them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stakes.budgets.curve import Curve
from stakes.calibration.adaptive.sampler import Numbers, Questions
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.power import PAPER_DEPENDENCE
from stakes.evaluation.outcome_log import Outcome

Table = NDArray[np.int64]


@dataclass(frozen=True)
class KnownAnswers:
    """``wrong``: by tier, questions × budgets; ``questions``: by tier, the document and the name of each."""

    budgets: tuple[int, ...]
    questions: Questions
    wrong: Mapping[str, Table]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "KnownAnswers":
        """Of a log that holds every question at every budget."""
        budgets = tuple(sorted({outcome.budget for outcome in outcomes}))
        found: dict[str, dict[tuple[str, str], dict[int, bool]]] = {}
        for o in outcomes:
            found.setdefault(o.tier, {}).setdefault((o.document, o.sample), {})[o.budget] = not o.correct
        wrong = {
            tier: np.array([[line[budget] for budget in budgets] for line in lines.values()], np.int64)
            for tier, lines in found.items()
        }
        return cls(budgets, {tier: list(lines) for tier, lines in found.items()}, wrong)

    @classmethod
    def simulated(
        cls, truth: Mapping[str, Curve], number: int, rng: np.random.Generator, per_document: int = 1
    ) -> "KnownAnswers":
        """``number`` questions of each tier, ``per_document`` on a page, drawn as by ``certify.power.simulate``.

        Of a question's difficulty, 0.3 is its page's where a page has several questions.
        """
        likeness, total = 0.3 if per_document > 1 else 0.0, number * len(truth)
        pages = rng.permutation(np.arange(total) // per_document)
        page, series = rng.standard_normal(total), rng.integers(1 << 40)  # names decide the order
        questions, wrong = {}, {}
        for k, (tier, curve) in enumerate(truth.items()):
            at = pages[k * number : (k + 1) * number]
            own = np.sqrt(likeness) * page[at] + np.sqrt(1 - likeness) * rng.standard_normal(number)
            noise = rng.standard_normal((number, len(curve.budgets)))
            latent = np.sqrt(PAPER_DEPENDENCE) * own[:, None] + np.sqrt(1 - PAPER_DEPENDENCE) * noise
            wrong[tier] = (latent < ndtri(np.array(curve.errors))).astype(np.int64)
            questions[tier] = [(f"{series}/{document}", f"{series}/{tier}/{i}") for i, document in enumerate(at)]
        return cls(next(iter(truth.values())).budgets, questions, wrong)

    @property
    def counts(self) -> dict[str, int]:
        """Questions by tier."""
        return {tier: len(found) for tier, found in self.questions.items()}

    def __add__(self, other: "KnownAnswers") -> "KnownAnswers":
        questions = {tier: [*found, *other.questions[tier]] for tier, found in self.questions.items()}
        return KnownAnswers(
            self.budgets, questions, {tier: np.vstack([table, other.wrong[tier]]) for tier, table in self.wrong.items()}
        )

    def ask(self, questions: Numbers, columns: Numbers) -> dict[str, Table]:
        """The answers to these questions at these columns."""
        return {tier: self.wrong[tier][np.ix_(numbers, columns[tier])] for tier, numbers in questions.items()}

    def by_document(self) -> ByDocument:
        """All of them as tables by document."""
        documents = sorted({document for found in self.questions.values() for document, _ in found})
        row = {document: i for i, document in enumerate(documents)}
        tables = {tier: np.zeros((2, len(documents), len(self.budgets)), np.int64) for tier in self.wrong}
        for tier, found in self.questions.items():
            at = [row[document] for document, _ in found]
            np.add.at(tables[tier][0], at, self.wrong[tier])
            np.add.at(tables[tier][1], at, 1)
        wrong, asked = ({tier: table[i] for tier, table in tables.items()} for i in range(2))
        return ByDocument(tuple(documents), self.budgets, wrong, asked)

    def of_documents(self, names: Collection[str]) -> "KnownAnswers":
        """Those of these documents."""
        rows = {
            tier: [i for i, (document, _) in enumerate(q) if document in names] for tier, q in self.questions.items()
        }
        return KnownAnswers(
            self.budgets,
            {tier: [self.questions[tier][i] for i in numbers] for tier, numbers in rows.items()},
            {tier: self.wrong[tier][numbers] for tier, numbers in rows.items()},
        )

    def resampled(self, rng: np.random.Generator) -> "KnownAnswers":
        """As many documents, drawn with replacement."""
        documents = sorted({document for found in self.questions.values() for document, _ in found})
        drawn, series = rng.integers(len(documents), size=len(documents)), rng.integers(1 << 40)
        questions: dict[str, list[tuple[str, str]]] = {}
        wrong = {}
        for tier, found in self.questions.items():
            held: dict[str, list[int]] = {}
            for number, (document, _) in enumerate(found):
                held.setdefault(document, []).append(number)
            chosen = [(copy, n) for copy, d in enumerate(drawn) for n in held.get(documents[d], [])]
            questions[tier] = [(f"{series}/{copy}", f"{series}/{copy}/{found[n][1]}") for copy, n in chosen]
            wrong[tier] = self.wrong[tier][[n for _, n in chosen]]
        return KnownAnswers(self.budgets, questions, wrong)
