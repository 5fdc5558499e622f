"""What would an independent reader say? The paper's consequence rubric, put to any OpenAI-compatible model.

Paper, "LLM-judge check (consequence rubric)": the judge is shown the question alone, blind to the keyword rule. Its
reply counts only if it is one tier's name and nothing else; anything else is asked again, and then undecided. It never
guesses. Verdicts are cached on disk; a labels file serves in place of an endpoint.

    judge = Judge("http://127.0.0.1:8000/v1", "my-model", cache="verdicts.jsonl")
    judge("What is the invoice number?")        # Reading(tier='high', probability=1.0, why='judge my-model', …)
    Judge(labels="labels.jsonl").read(questions, ids)
"""

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from stakes.errors import BadInput
from stakes.signals.base import Reading, find_dearest, is_blank, undecided
from stakes.signals.endpoint import ChatEndpoint, Message
from stakes.signals.verdicts import Labels, VerdictCache, verdict_key

RUBRIC: dict[str, str] = {
    "high": "a wrong answer is a specific monetary amount, date, count, rate, or formal record identifier (invoice, "
    "voucher, fund, serial, phone, fax, zip, code) that propagates into a decision or record",
    "low": "the answer is a name, title, type, heading, description, navigational locator (page/table/chapter number), "
    "or trivial schedule time",
}
"""The paper's rubric, verbatim."""


class Judge:
    """A signal that asks a model (``base_url`` and ``model``) or looks up a labels file (``labels``): give one of them.

    A verdict's probability is 1.0: the judge gives a word, not a degree. An endpoint that cannot be reached is an
    error, not an undecided reading; keyword arguments beyond those named go to ``ChatEndpoint``.
    """

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        *,
        labels: str | Path | None = None,
        rubric: Mapping[str, str] = RUBRIC,
        dearest: str | None = None,
        cache: str | Path | None = None,
        asks: int = 3,
        **endpoint: Any,
    ) -> None:
        if (base_url is None) == (labels is None):
            raise BadInput("a judge needs an endpoint (base_url and model) or a labels file, and not both")
        if len(rubric) < 2 or not all(word.strip() for word in rubric.values()):
            raise BadInput("a rubric needs at least two tiers, each with its description")
        if asks < 1:
            raise BadInput(f"a judge must be asked at least once, not {asks!r} times")
        self.rubric, self.asks = dict(rubric), asks
        self._dearest = find_dearest(self.rubric, dearest)
        if self._dearest not in self.rubric:
            raise BadInput(f"the dearest tier {self._dearest!r} is not in the rubric")
        self._words = {name.lower(): name for name in self.rubric}
        if len(self._words) != len(self.rubric):
            raise BadInput("two tiers of the rubric differ by case alone, so a reply cannot tell them apart")
        self._labels = None if labels is None else Labels(labels, self.tiers)
        self._endpoint: ChatEndpoint | None = None
        if base_url is not None:
            self._endpoint = ChatEndpoint(base_url, model or "", api_key, **endpoint)
        self._cache = VerdictCache(cache)
        self._prompt = instructions(self.rubric)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers it can name."""
        return tuple(self.rubric)

    @property
    def dearest(self) -> str:
        """The tier it falls to when undecided."""
        return self._dearest

    @property
    def name(self) -> str:
        """Who judges: the model, or the labels file."""
        return self._endpoint.model if self._endpoint else f"labels {self._labels.path.name}" if self._labels else ""

    @property
    def offline(self) -> bool:
        """Whether its verdicts are looked up in a labels file, so that nobody is asked."""
        return self._labels is not None

    def __call__(self, question: str, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Judge one question."""
        return self._read(question, None)

    def read(self, questions: Sequence[str], ids: Sequence[str] | None = None, *, workers: int = 8) -> list[Reading]:
        """Judge many questions, at most ``workers`` at a time; ``ids`` lets a labels file be keyed by sample id.

        Each different question is asked once. On an error the rest is not asked; verdicts already given are cached.
        """
        if workers < 1:
            raise BadInput(f"a judge needs at least one worker, not {workers!r}")
        if ids is not None and len(ids) != len(questions):
            raise BadInput(f"every question needs one id, not {len(questions)} questions and {len(ids)} ids")
        samples = list(zip(questions, ids if ids is not None else [None] * len(questions), strict=True))
        if self._labels is not None:
            return [self._read(question, sample) for question, sample in samples]
        different = list(dict.fromkeys(questions))
        failed = threading.Event()

        def read(question: str) -> Reading | None:
            if failed.is_set():  # a worker whose ask failed would take the next before map cancels it, tries and all
                return None
            try:
                return self._read(question, None)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(workers) as pool:  # map raises what failed, and cancels what has not begun
            said = dict(zip(different, pool.map(read, different), strict=True))
        return [reading for question in questions if (reading := said[question]) is not None]

    def _read(self, question: str, sample: str | None) -> Reading:
        if self._labels is not None:
            tier = self._labels.get(question, sample)
            if tier is None:
                return undecided(self._dearest, len(self.rubric), f"no label in {self._labels.path.name}")
            return Reading(tier, 1.0, f"judge {self.name}")
        if is_blank(question):
            return undecided(self._dearest, len(self.rubric), "the question is empty")
        key = verdict_key(self.name, self._prompt, question)
        tier = self._cache.get(key)
        if tier in self.rubric:
            return Reading(tier, 1.0, f"judge {self.name}, cached")
        return self._ask(question, key)

    def _ask(self, question: str, key: str) -> Reading:
        assert self._endpoint is not None
        messages: list[Message] = [
            {"role": "system", "content": self._prompt},
            {"role": "user", "content": f"Question: {question}"},
        ]
        reply = ""
        for _ in range(self.asks):
            reply = self._endpoint.ask(messages)
            tier = parse_reply(reply, self._words)
            if tier is not None:
                self._cache.put(key, tier, model=self.name, question=question)
                return Reading(tier, 1.0, f"judge {self.name}")
            # at temperature 0 the same words would get the same reply, so the next try says what was wrong
            reminder = f"Reply with exactly one word: {' or '.join(self.rubric)}."
            messages = [*messages[:2], {"role": "assistant", "content": reply}, {"role": "user", "content": reminder}]
        shown = " ".join(reply[:60].split())
        return undecided(self._dearest, len(self.rubric), f'judge {self.name} named no tier, last reply "{shown}"')

    def close(self) -> None:
        """Close the connections."""
        if self._endpoint is not None:
            self._endpoint.close()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def instructions(rubric: Mapping[str, str]) -> str:
    """Write the rubric as instructions; nothing in them tells of keywords or of how the questions were picked."""
    lines = [f"- {tier}: {when}." for tier, when in rubric.items()]
    return "\n".join(
        [
            "You rate what a wrong answer to a question about a document image would lead to.",
            "You see the question only. The ratings are:",
            *lines,
            f"Reply with exactly one word: {' or '.join(rubric)}.",
        ]
    )


def parse_reply(reply: str, words: Mapping[str, str]) -> str | None:
    """Return the tier a reply names, bare or as {"tier": name}, by ``words`` (lower case to name); else None."""
    text = reply.strip()
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict) or set(data) != {"tier"} or not isinstance(data["tier"], str):
            return None
        text = data["tier"].strip()
    return words.get(text.removesuffix(".").lower())
