"""An LLM judge as a signal: the paper's consequence rubric, put to any OpenAI-compatible model.

Paper, "LLM-judge check (consequence rubric)": the judge sees the question alone, blind to the keyword rule. It names
the kind of answer first and the tier after it: asked for the tier alone, a small model says the same tier to nearly
every question (``docs/dev/decisions.md``). Its reply counts only if it is a JSON object with the name of a tier under
"tier", or the name of a tier and nothing else. Any other reply is followed by a reminder, and after ``asks`` replies
the question is undecided; nothing is guessed. Verdicts are cached on disk. A labels file can replace the endpoint.

    judge = Judge("http://127.0.0.1:8000/v1", "my-model", cache="verdicts.jsonl")
    judge("What is the invoice number?")        # Reading(tier='high', probability=1.0, why='judge my-model', …)
    Judge(labels="labels.jsonl").read(questions, ids)
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput
from stakes.http import HttpClient, Retries, Unusable
from stakes.signals.base import Reading, find_most_expensive, is_blank, undecided
from stakes.signals.prompt import Prompt, text_of
from stakes.signals.verdicts import Labels, VerdictCache, verdict_key

RUBRIC: dict[str, str] = {
    "high": "a wrong answer is a specific monetary amount, date, count, rate, or formal record identifier (invoice, "
    "voucher, fund, serial, phone, fax, zip, code) that propagates into a decision or record",
    "low": "the answer is a name, title, type, heading, description, navigational locator (page/table/chapter number), "
    "or trivial schedule time",
}
"""The paper's rubric, verbatim."""
MOST_OF_A_REPLY = 200  # characters that are cached beside a verdict and repeated in a reminder


@dataclass(frozen=True)
class JudgeOptions(Retries):
    """Less common options of a judge, beside its retries.

    ``cache``: a file of verdicts. ``asks``: how many replies may name no tier before the question is undecided.
    ``max_tokens``: the length of a reply; None leaves it to the server. ``longest``: characters of a question; a longer
    one is undecided and is not sent.
    """

    timeout_s: float = 60.0
    cache: str | Path | None = None
    asks: int = 3
    max_tokens: int | None = 64
    longest: int = 4000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asks < 1:
            raise BadInput(f"a judge must be asked at least once, not {self.asks!r} times")
        if self.longest < 1:
            raise BadInput(f"a judge's longest question must have at least one character, not {self.longest!r}")


class Judge:
    """A signal that asks a model (``base_url`` and ``model``) or reads a labels file (``labels``): give one of them.

    ``options``: the fields of ``JudgeOptions``: cache, asks, max_tokens, longest, tries, timeout_s, pause_s,
    longest_pause_s. A verdict's probability is 1.0: the judge gives a tier, not a degree. An endpoint that cannot be
    reached is an error, not an undecided reading.
    """

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        *,
        labels: str | Path | None = None,
        rubric: Mapping[str, str] = RUBRIC,
        most_expensive: str | None = None,
        **options: Any,
    ) -> None:
        if (base_url is None) == (labels is None):
            raise BadInput("a judge needs an endpoint (base_url and model) or a labels file, and not both")
        if base_url is not None and not model:
            raise BadInput("a judge's endpoint needs the name of the model to ask")
        if len(rubric) < 2 or not all(text.strip() for text in rubric.values()):
            raise BadInput("a rubric needs at least two tiers, each with its description")
        self.rubric, self.tiers = dict(rubric), tuple(rubric)
        self.most_expensive = find_most_expensive(self.rubric, most_expensive)
        if self.most_expensive not in self.rubric:
            raise BadInput(f"the most expensive tier {self.most_expensive!r} is not in the rubric")
        self._tier_names = {name.lower(): name for name in self.rubric}
        if len(self._tier_names) != len(self.rubric):
            raise BadInput("two tiers of the rubric differ by case alone, so a reply cannot distinguish them")
        self._options = JudgeOptions(**options)
        self._labels = None if labels is None else Labels(labels, self.tiers)
        self._client = None if base_url is None else HttpClient(base_url, api_key, self._options)
        self.name = model or "" if self._labels is None else f"labels {self._labels.path.name}"
        self._cache = VerdictCache(self._options.cache)
        self._instructions = instructions(self.rubric)

    @property
    def offline(self) -> bool:
        """Whether its verdicts come from a labels file, so that no model is asked."""
        return self._labels is not None

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Judge one question."""
        return self._read(text_of(prompt), None)

    def read(self, questions: Sequence[str], ids: Sequence[str] | None = None, *, workers: int = 8) -> list[Reading]:
        """Judge many questions, at most ``workers`` at a time; ``ids`` lets a labels file be keyed by sample id.

        Each different question is asked once. After an error the rest is not asked; earlier verdicts are cached.
        """
        if workers < 1:
            raise BadInput(f"a judge needs at least one worker, not {workers!r}")
        if ids is not None and len(ids) != len(questions):
            raise BadInput(f"every question needs one id, not {len(questions)} questions and {len(ids)} ids")
        if self._labels is not None:
            samples = [None] * len(questions) if ids is None else ids
            return [self._read(question, sample) for question, sample in zip(questions, samples, strict=True)]
        failed = threading.Event()

        def read(question: str) -> Reading | None:
            if failed.is_set():  # a free worker would ask the next question, with all tries, before map cancels it
                return None
            try:
                return self._read(question, None)
            except BaseException:
                failed.set()
                raise

        unique = list(dict.fromkeys(questions))
        with ThreadPoolExecutor(workers) as pool:  # map raises what failed, and cancels what has not begun
            readings = dict(zip(unique, pool.map(read, unique), strict=True))
        return [reading for question in questions if (reading := readings[question]) is not None]

    def _read(self, question: str, sample: str | None) -> Reading:
        if self._labels is not None:
            tier = self._labels.get(question, sample)
            if tier is None:
                return self._undecided(f"no label in {self._labels.path.name}")
            return Reading(tier, 1.0, f"judge {self.name}")
        if is_blank(question):
            return self._undecided("the question is empty")
        if len(question) > self._options.longest:
            return self._undecided(
                f"the question has {len(question):,} characters, the judge reads {self._options.longest:,}"
            )
        key = verdict_key(self.name, self._instructions, question)
        tier = self._cache.get(key)
        if tier in self.rubric:
            return Reading(tier, 1.0, f"judge {self.name}, cached")
        return self._ask(question, key)

    def _ask(self, question: str, key: str) -> Reading:
        prompt = [
            {"role": "system", "content": self._instructions},
            {"role": "user", "content": f"Question: {question}"},
        ]
        messages, reply = prompt, ""
        for _ in range(self._options.asks):
            reply = self._reply(messages)
            tier = parse_reply(reply, self._tier_names)
            if tier is not None:
                self._cache.put(key, tier, model=self.name, question=question, reply=reply[:MOST_OF_A_REPLY])
                return Reading(tier, 1.0, f"judge {self.name}")
            # at temperature 0 the same messages would get the same reply, so the next try adds a reminder
            reminder = f"Do not answer the question, rate it. {reply_form(self.rubric)}"
            messages = [
                *prompt,
                {"role": "assistant", "content": reply[:MOST_OF_A_REPLY]},
                {"role": "user", "content": reminder},
            ]
        excerpt = " ".join(reply[:60].split())
        return self._undecided(f'judge {self.name} named no tier, last reply "{excerpt}"')

    def _reply(self, messages: list[dict[str, str]]) -> str:
        assert self._client is not None
        body = {"model": self.name, "messages": messages, "temperature": 0}
        if self._options.max_tokens is not None:
            body["max_tokens"] = self._options.max_tokens
        return self._client.request("POST", self._client.url("chat/completions"), body, _content)[0]

    def _undecided(self, why: str) -> Reading:
        return undecided(self.most_expensive, len(self.rubric), why)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def instructions(rubric: Mapping[str, str]) -> str:
    """The rubric as instructions; they do not mention keywords or how the questions were picked."""
    ratings = "\n".join(f"- {tier}: {when}." for tier, when in rubric.items())
    return (
        "You rate what a wrong answer to a question about a document image would lead to.\n"
        f"You see the question only, and you do not answer it. The ratings are:\n{ratings}\n"
        "Decide first what kind of thing the answer is, then which rating describes that kind.\n"
        f"{reply_form(rubric)}"
    )


def reply_form(rubric: Iterable[str]) -> str:
    """How the judge is to reply."""
    tiers = " or ".join(f'"{tier}"' for tier in rubric)
    return f'Reply as JSON: {{"answer": "kind of thing", "tier": {tiers}}}'


def parse_reply(reply: str, tier_names: Mapping[str, str]) -> str | None:
    """The tier that a reply names, bare or under "tier" in one JSON object, else None.

    A code fence around the reply is ignored. ``tier_names``: lower case to tier.
    """
    text = reply.strip()
    fence, _, rest = text.partition("\n")
    if fence in ("```", "```json") and rest.endswith("```"):
        text = rest.removesuffix("```").strip()
    if text.startswith("{"):
        try:
            tier = json.loads(text, object_pairs_hook=_unique).get("tier")
        except (ValueError, RecursionError):
            return None
        if not isinstance(tier, str):
            return None
        text = tier.strip()
    return tier_names.get(text.removesuffix(".").lower())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one that names a key twice could name two tiers."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _content(reply: Any) -> str:
    """The text of a chat completion; null content is a reply without text."""
    try:
        content = reply["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        raise Unusable("its reply is not a chat completion") from None
    return content if isinstance(content, str) else ""
