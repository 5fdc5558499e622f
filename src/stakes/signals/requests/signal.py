"""The signal for real requests: what question, schema, earlier turns and system text want, and which one decides."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Self

from stakes.errors import BadInput
from stakes.signals.base import Reading, undecided
from stakes.signals.prompt import Prompt, SchemaField, as_prompt
from stakes.signals.requests import clauses as asked
from stakes.signals.requests.clauses import NOTHING, UNKNOWN, Finding, Wants, read_field
from stakes.signals.requests.terms import Matcher, Term
from stakes.signals.requests.text import Clause, clauses, cut, json_keys, without_examples
from stakes.signals.requests.vocabulary import Vocabulary, read_own, read_terms

MOST_TURNS = 8
"""Earlier messages of the user that a follow-up is traced back through."""
_HINT = 500  # characters of the system text that tell the language of field names
_NAMES = 20  # field names that do so as well
_VOTES = 400  # words that tell the language of a text


class RequestSignal:
    """Reads the tier of a request from everything that it says.

    ``tiers``: their names, the most expensive first. ``fields``: terms of your own and their tiers; a request takes the
    most expensive of its fields. ``vocabulary``: further terms by kind (``vocabulary.KINDS``), and ``remove``, terms of
    the built-in vocabulary to forget. ``undecided``: the tier of requests in which nothing is recognised; the most
    expensive one unless given.
    """

    def __init__(
        self,
        tiers: Sequence[str] = ("high", "low"),
        fields: Mapping[str, str] | None = None,
        vocabulary: Mapping[str, Sequence[str]] | None = None,
        undecided: str | None = None,
    ) -> None:
        self.tiers, self.fields = tuple(tiers), dict(fields or {})
        self.added = dict(vocabulary or {})
        if len(self.tiers) < 2 or len(set(self.tiers)) != len(self.tiers):
            raise BadInput(f"a signal for requests needs two or more different tiers, not {list(self.tiers)}")
        self.most_expensive = undecided or self.tiers[0]
        named = {f"the field {term!r}": tier for term, tier in self.fields.items()} | {"undecided": self.most_expensive}
        for what, tier in named.items():
            if tier not in self.tiers:
                raise BadInput(f"{what} has tier {tier!r}; the tiers are {', '.join(self.tiers)}")
        removed = self.added.get("remove", ())
        if not isinstance(removed, list | tuple) or not all(isinstance(term, str) for term in removed):
            raise BadInput(f"remove must be a list of terms, not {removed!r:.60}")
        added = read_terms({kind: terms for kind, terms in self.added.items() if kind != "remove"}, "the vocabulary")
        own = [Term("field", term, tier) for term, tier in self.fields.items()]
        self.vocabulary = Vocabulary([*own, *added], removed)
        self._system = lru_cache(maxsize=256)(self._read_system)  # by text that is cut: at most 3 MB

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:
        """Read the tier of a request; ``why`` names the words that decided."""
        request = as_prompt(prompt, task)
        found = self._read(request)
        if found.wants in ("high", "low"):
            return Reading(self._tier(found), 1.0, found.why)
        why = "nothing in the request was recognised" if request.text.strip() else "the request has no text"
        return undecided(self.most_expensive, len(self.tiers), why)

    def find_fields(self, prompt: str | Prompt) -> list[tuple[str, str]]:
        """All fields that the question and the schema name, each with its tier, the most expensive first."""
        request = as_prompt(prompt)
        said, matcher = self._clauses(request.question)
        named: dict[str, str] = {}
        for hit in (hit for clause in said for hit in matcher.find(clause.words)):
            if hit.kind in asked.NAMED:
                named[hit.term] = self._tier(Finding("low" if hit.kind == "low" else "high", tiers=(hit.tier,)))
        for field in request.schema:
            found = read_field(field, matcher)
            if found.wants in ("high", "low"):
                named[field.name] = self._tier(found)
        return sorted(named.items(), key=lambda item: self.tiers.index(item[1]))

    def _tier(self, found: Finding) -> str:
        if found.wants == "low":
            return self.tiers[-1]
        return min((tier or self.tiers[0] for tier in found.tiers), key=self.tiers.index, default=self.tiers[0])

    def _read(self, request: Prompt) -> Finding:
        """High, low, or something else where nothing decides.

        The schema and the question decide first, then an earlier question, the system text, and optional tools.
        """
        schema, question = self._fields(request.schema, request), self._question(request.question)
        if "high" in (schema.wants, question.wants):
            return self._most([schema, question])
        if schema.wants in ("low", "unknown"):
            return schema  # also for "Fill in the fields": they are the schema's
        if question.wants in _DECIDES:
            return question._replace(wants=_DECIDES[question.wants])
        if question.wants == "follow_up" and not request.history:
            question = UNKNOWN
        if question.wants in ("nothing", "recheck", "follow_up"):
            earlier = self._earlier(request)
            if earlier.wants in _DECIDES:
                return Finding(_DECIDES[earlier.wants], f"the question before: {earlier.why}", earlier.tiers)
        system = self._system(cut(request.system))
        if system.wants == "mentions" and question.wants == "nothing":  # "List the title." decides, a rule on form not
            system = system._replace(wants="low")
        if question.wants == "mentions" and _DECIDES.get(system.wants) != "high":
            return question._replace(wants="low")
        if system.wants in _DECIDES:
            return Finding(_DECIDES[system.wants], f"system text: {system.why}", system.tiers)
        return self._fields(request.optional, request)

    def _earlier(self, request: Prompt) -> Finding:
        """What the last of the earlier questions wanted that wanted something."""
        texts = [turn.text for turn in request.history if turn.role == "user" and turn.text.strip()]
        found = map(self._question, texts[: -MOST_TURNS - 1 : -1])
        return next((one for one in found if one.wants in _DECIDES), NOTHING)

    def _question(self, text: str) -> Finding:
        """What a user's text wants: the most expensive of its clauses, or of the keys of JSON in it."""
        said, matcher = self._clauses(text)
        found = [asked.read_question(clause, matcher) for clause in said]
        keys = self._keys(text, matcher)
        return self._most([*found, keys] if keys.wants in ("high", "low") else found)

    def _read_system(self, text: str) -> Finding:
        """What the system text wants; a list after a command belongs to it."""
        said, matcher = self._clauses(text)
        found, listing = [], False
        for clause in said:
            listed = listing and (clause.item or clause.words.count(",") >= 2)
            hits = matcher.find(clause.words)
            found.append(asked.read_instruction(clause, hits, matcher.head_first, listed))
            listing = listed or asked.is_command(hits)
        keys = self._keys(text, matcher)
        return self._most([*found, keys] if keys.wants in ("high", "low") else found)

    def _keys(self, text: str, matcher: Matcher) -> Finding:
        """What the keys of JSON in a text want."""
        keys = json_keys(without_examples(cut(text)))
        return self._most([read_field(SchemaField(key), matcher) for key in keys])

    def _fields(self, schema: Sequence[SchemaField], request: Prompt) -> Finding:
        """What a schema wants: its most expensive field; the request's text tells the language of the names."""
        if not schema:
            return NOTHING
        names = " ".join(field.name for field in schema[:_NAMES])
        _, matcher = self._clauses(f"{request.question}\n{request.system[:_HINT]}\n{names}")
        found = [read_field(field, matcher) for field in schema]
        unknown = any(one.wants == "unknown" for one in found)
        most = self._most(found)
        return UNKNOWN if unknown and most.wants == "low" else most

    def _most(self, found: Sequence[Finding]) -> Finding:
        def rank(one: Finding) -> tuple[int, int]:
            return asked.ORDER.index(one.wants), self.tiers.index(self._tier(one)) if one.tiers else 0

        return min(found, key=rank, default=NOTHING)

    def _clauses(self, text: str) -> tuple[list[Clause], Matcher]:
        """The clauses of a text without its examples, and the terms of its languages."""
        text = without_examples(cut(text))
        said = clauses(text)
        return said, self.vocabulary.matcher(text, islice((word for clause in said for word in clause.words), _VOTES))

    def to_dict(self) -> dict[str, Any]:
        """The signal as plain JSON values: a user's own terms, not the built-in vocabulary."""
        own = {"fields": self.fields, "vocabulary": self.added}
        record = {"kind": "requests", "tiers": list(self.tiers), "undecided": self.most_expensive}
        return record | {key: value for key, value in own.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the signal from plain JSON values, checking every one."""
        tiers, fields, terms = data.get("tiers"), data.get("fields", {}), data.get("vocabulary", {})
        if not isinstance(tiers, list) or not all(isinstance(tier, str) and tier.strip() for tier in tiers):
            raise BadInput(
                f"a signal for requests needs tiers, a list of names, the most expensive first: {tiers!r:.60}"
            )
        if not isinstance(fields, Mapping) or not all(isinstance(tier, str) for tier in fields.values()):
            raise BadInput(f"fields must map terms to tiers, such as total = 'high', not {fields!r:.60}")
        if not isinstance(terms, Mapping):
            raise BadInput(f"vocabulary must hold lists of terms by kind, not {terms!r:.60}")
        rest = data.get("undecided")
        if rest is not None and not isinstance(rest, str):
            raise BadInput(f"undecided must be the name of a tier, not {rest!r:.60}")
        return cls(tiers, fields, terms, rest)

    @classmethod
    def load(cls, path: str | Path, tiers: Sequence[str], undecided: str | None = None) -> Self:
        """The signal with a user's TOML file: ``[fields]``, lists of terms by kind, ``remove`` and ``undecided``."""
        record = read_own(path)
        record = {"fields": record.pop("fields", {}), "undecided": record.pop("undecided", None), "vocabulary": record}
        try:
            return cls.from_dict({**record, "tiers": list(tiers), "undecided": undecided or record["undecided"]})
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None


_DECIDES: Mapping[Wants, Wants] = {"high": "high", "everything": "high", "low": "low", "plain": "low"}
