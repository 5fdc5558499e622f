"""What one clause of a request asks for, and what one field of a schema is.

A clause that asks for an expensive field is read by its head: in "What is the name of the person with the highest
total?" a name is asked for, and "total" only says which. In languages that put the head first, the first field of the
clause is the head, unless it is part of a compound ("vendor total") or a possessive ("the patient's date of birth").
Fields that a list joins to it count as well.

>>> from stakes.signals.requests.text import clauses
>>> from stakes.signals.requests.vocabulary import Vocabulary
>>> matcher = Vocabulary().matcher("the", ["the"])
>>> [read_question(clause, matcher).wants for clause in clauses("Thanks. What is the due date?")]
['nothing', 'high']
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from stakes.signals.prompt import SchemaField
from stakes.signals.requests.terms import Hit, Matcher
from stakes.signals.requests.text import Clause, words

Wants = Literal["high", "everything", "recheck", "low", "follow_up", "mentions", "unknown", "plain", "nothing"]
"""``everything``: extraction of whatever is there. ``recheck`` and ``follow_up``: what the question before wanted.
``mentions``: it mentions something cheap and asks for nothing. ``plain``: a question for no known field.
"""
ORDER: tuple[Wants, ...] = (
    "high",
    "everything",
    "recheck",
    "low",
    "follow_up",
    "mentions",
    "unknown",
    "plain",
    "nothing",
)
"""What a text wants is the first of these that one of its clauses wants."""
EXPENSIVE = frozenset({"field", "high", "quantity"})
_STRONG = frozenset({"field", "high"})
NAMED = EXPENSIVE | {"low"}
_COMMANDS = frozenset({"extract", "command", "transcribe", "describe"})
_EMPTY = frozenset({"neutral", "common", "and", "reply", "ignore", "personal"})
_AFTER_A_HEAD = frozenset({"personal", "common", "and", "ask", "who", "neutral", "command", "reply", "follow_up"})
_POSSESSIVE = "s"
_CHECKS = frozenset({"is", "are", "was", "does", "did", "check", "verify", "confirm"})  # "Is the total 42.90?"


class Finding(NamedTuple):
    """What a clause wants, and the words that say so; ``tiers``: of a user's own fields, "" for built-in ones."""

    wants: Wants
    why: str = ""
    tiers: tuple[str, ...] = ()


LONGEST_ITEM = 10
"""Words of a list item that names a field; a longer one is a rule."""
NOTHING, UNKNOWN = Finding("nothing"), Finding("unknown")


def read_question(clause: Clause, matcher: Matcher) -> Finding:
    """What a clause of the user's text wants."""
    hits = matcher.find(clause.words)
    kinds = {hit.kind for hit in hits}
    asking = clause.asks or (bool(hits) and hits[0].kind in ("ask", "who", "extract", "command", "transcribe"))
    asking = asking or (not matcher.head_first and "ask" in kinds)  # the question word may come last
    if "ignore" in kinds and not asking:
        return NOTHING
    if "transcribe" in kinds:
        return _of("high", hits, "transcribe", "transcription")
    wanted = _wanted(hits, clause.words, matcher.head_first)
    if ("reply" in kinds and not clause.asks) or "describe" in kinds:
        wanted = [hit for hit in wanted if hit.kind != "quantity"]
    if any(hit.kind in EXPENSIVE for hit in wanted):
        return _field(wanted)
    if kinds & {"everything", "extract"} and "low" not in kinds:
        return _of("everything", hits, "everything" if "everything" in kinds else "extract", "extraction")
    if "reply" in kinds and not asking and not _is_before("reply", hits, matcher.head_first):
        return NOTHING
    if "recheck" in kinds:
        return _of("recheck", hits, "recheck")
    for kind in ("describe", "low", "who"):
        if kind in kinds and not (kind == "who" and "personal" in kinds):
            asks = kind != "low" or asking or "command" in kinds or "ask" in kinds
            return _of("low" if asks else "mentions", hits, kind)
    if "follow_up" in kinds:
        return _of("follow_up", hits, "follow_up")
    if "ask" in kinds and asking and "personal" not in kinds:
        return Finding("plain", "a question for no known field")
    return NOTHING if _is_empty(clause.words, hits) and "command" not in kinds else UNKNOWN


def read_instruction(clause: Clause, hits: Sequence[Hit], head_first: bool, listed: bool = False) -> Finding:
    """What a clause of the system text wants; only commands count, and items of a list that follows one."""
    kinds = {hit.kind for hit in hits}
    if "ignore" in kinds and not kinds & {"extract", "transcribe"}:
        return NOTHING
    if "transcribe" in kinds and "reply" not in kinds:
        return _of("high", hits, "transcribe", "transcription")
    listed = listed and len(clause.words) <= LONGEST_ITEM
    if not (kinds & _COMMANDS or listed) or ("reply" in kinds and not kinds & {"extract", "describe"}):
        return NOTHING
    wanted = _wanted(hits, clause.words, head_first)
    if any(hit.kind in EXPENSIVE for hit in wanted) and (not kinds & {"describe"} or "extract" in kinds or listed):
        return _field(wanted)
    if "extract" in kinds and "low" not in kinds:
        return _of("everything", hits, "extract", "extraction")
    if "command" in kinds and "everything" in kinds:
        return _of("everything", hits, "everything", "extraction")
    if "describe" in kinds:
        return _of("low", hits, "describe")
    return _of("mentions", hits, "low") if "low" in kinds else NOTHING


def read_field(field: SchemaField, matcher: Matcher) -> Finding:
    """What a field wants; ``nothing`` for one about the reply itself, such as a confidence.

    A yes-or-no field is low, and so is a choice from a fixed set: neither needs a value to be read exactly. A number or
    a date is high whatever its name.
    """
    if field.type == "boolean":
        return Finding("low", f'field "{field.name}": yes or no')
    hits = matcher.find(words(field.name))
    kinds = {hit.kind for hit in hits}
    if "reply" in kinds:
        return NOTHING
    own = next((hit for hit in hits if hit.kind == "field"), None)
    if own is not None:
        return Finding("high", f'field "{field.name}"', (own.tier,))
    if field.type == "enum":
        return Finding("low", f'field "{field.name}": a choice')
    if kinds & EXPENSIVE:
        return Finding("high", f'field "{field.name}"')
    if field.type in ("number", "date"):
        return Finding("high", f'field "{field.name}": a {field.type}')
    if kinds & {"low", "describe"}:
        return Finding("low", f'field "{field.name}"')
    described = {hit.kind for hit in matcher.find(words(field.description))}
    if described & EXPENSIVE:
        return Finding("high", f'field "{field.name}" by its description')
    if described & {"low", "describe"}:
        return Finding("low", f'field "{field.name}" by its description')
    return NOTHING if "neutral" in kinds else UNKNOWN


def is_command(hits: Sequence[Hit]) -> bool:
    """Whether a clause tells the model to produce something."""
    return any(hit.kind in ("extract", "command") for hit in hits)


def _wanted(hits: Sequence[Hit], spoken: Sequence[str], head_first: bool) -> list[Hit]:
    """The fields that a clause asks for: its head, and what a list joins to it."""
    fields = [hit for hit in hits if hit.kind in NAMED and not _is_given(hit, spoken)]
    if not head_first or not fields:
        return fields
    opener = next((hit for hit in hits if hit.kind not in ("common", "personal", "and", "neutral", "follow_up")), None)
    if opener is not None and opener.kind == "who":
        fields = [opener, *fields]
    heads = [hit for hit in fields if not _qualifies(hit, spoken, hits)]
    if not heads or heads[0].kind in EXPENSIVE:
        return fields
    return [heads[0], *(hit for hit in heads[1:] if _is_joined(hit, hits))]


def _is_given(hit: Hit, spoken: Sequence[str]) -> bool:
    """Whether the value stands next to a field, so that it is not asked for: "invoice 4711", "the year 1969"."""
    after = spoken[hit.end] if hit.end < len(spoken) else ""
    return hit.kind in ("quantity", "high") and after[:1].isdigit() and spoken[0] not in _CHECKS


def _qualifies(hit: Hit, spoken: Sequence[str], hits: Sequence[Hit]) -> bool:
    """Whether a cheap field only qualifies the next word: "vendor total", "the patient's date of birth"."""
    if hit.kind != "low" or hit.end >= len(spoken):
        return False
    after = next((one.kind for one in hits if one.start == hit.end), "")
    return spoken[hit.end] == _POSSESSIVE or after not in _AFTER_A_HEAD


def _is_before(kind: str, hits: Sequence[Hit], head_first: bool) -> bool:
    """Whether something cheap is asked for before the first term of a kind: "alt text, at most 20 words"."""
    first = next(hit.start for hit in hits if hit.kind == kind) if head_first else hits[-1].end
    return any(hit.kind in ("describe", "low") and hit.start < first for hit in hits)


def _is_joined(hit: Hit, hits: Sequence[Hit]) -> bool:
    """Whether a list joins a field to what stands before it: "and the date", ", total"."""
    for other in reversed([one for one in hits if one.end <= hit.start]):
        if other.kind in ("and", "follow_up"):  # "and this" may be listed as a whole
            return True
        if other.kind not in ("common", "personal", "ask", "command", "neutral"):
            return False
    return False


def _field(wanted: Sequence[Hit]) -> Finding:
    expensive = [hit for hit in wanted if hit.kind in EXPENSIVE]
    strong = [hit for hit in expensive if hit.kind in _STRONG] or expensive  # "when is the due date" asks for the date
    return Finding("high", f'"{strong[0].term}"', tuple(hit.tier for hit in strong))


def _of(wants: Wants, hits: Sequence[Hit], kind: str, what: str = "") -> Finding:
    term = next((hit.term for hit in hits if hit.kind == kind), "")
    return Finding(wants, f'{what}: "{term}"' if what else f'"{term}"')


def _is_empty(spoken: Sequence[str], hits: Sequence[Hit]) -> bool:
    """Whether every word is known and says nothing; names of files and numbers say nothing either."""
    covered = {i for hit in hits if hit.kind in _EMPTY for i in range(hit.start, hit.end)}
    return all(i in covered or not word.isalpha() for i, word in enumerate(spoken))
