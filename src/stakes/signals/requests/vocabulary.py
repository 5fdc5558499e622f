"""The words by which requests are read: one TOML file for each language, and a user's own file on top.

A file has one list of terms for each kind in ``KINDS``. A term is one or more words; ``*`` at the beginning or the end
of a word stands for any letters (``*nummer``, ``kwot*``). In Chinese, Japanese and Korean a term matches anywhere in a
run of characters. Where terms overlap, the longest match counts: "date palm" hides "date". ``head = "first"`` says that
the thing asked for stands before what qualifies it.

>>> spoken = ("what", "is", "the", "due", "date")
>>> hits = Vocabulary().matcher("What is the due date?", spoken).find(spoken)
>>> [(hit.kind, hit.term) for hit in hits if hit.kind != "common"]
[('ask', 'what is'), ('high', 'due date')]
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from stakes.errors import BadInput
from stakes.signals.requests.terms import Index, Matcher, Term, parse_term

KINDS: Mapping[str, str] = {
    "high": "expensive to misread: amounts, identifiers, specific dates",
    "transcribe": "commands to transcribe or convert a document",
    "extract": "commands to extract data",
    "command": "commands that ask for whatever is named after them: list, find, give me",
    "quantity": "words for any number, date or code: they count in questions and field names, not in reply formats",
    "everything": "all of it: all fields, the data, the contents",
    "ignore": "boilerplate: its clause is skipped",
    "reply": "instructions about the form of the reply",
    "describe": "commands to describe, classify or summarise",
    "low": "cheap to misread: titles, names, colours, kinds of document",
    "who": "question words whose answer is a name, a place or a reason",
    "recheck": "doubts about the answer before",
    "follow_up": "what goes on from the question before",
    "personal": "words of somebody who asks for himself: I, my, we; such a question is not a plain one",
    "ask": "other question words",
    "neutral": "words that do not say what is asked: document, file, process, please",
    "and": "words that join a list",
    "common": "function words, which also tell the language",
}
"""Each kind of term and what it holds."""
_HAN, _KANA, _HANGUL = re.compile(r"[\u4e00-\u9fff]"), re.compile(r"[\u3040-\u30ff]"), re.compile(r"[\uac00-\ud7af]")
_ARABIC, _DEVANAGARI = re.compile(r"[\u0600-\u06ff]"), re.compile(r"[\u0900-\u097f]")
_SCRIPTS = {"zh": _HAN, "ja": _KANA, "ko": _HANGUL, "ar": _ARABIC, "hi": _DEVANAGARI}


_ALSO_LATIN = ("hi",)  # written in both scripts
LEAST_SHARE = 0.6
"""A language counts if it has more than this share of the function words that the likeliest one has."""


class Language(NamedTuple):
    """The terms of one language; ``head_first``: what is asked for stands before what qualifies it."""

    terms: Index
    head_first: bool


class Vocabulary:
    """The terms of all languages, and a user's own, which replace those of the same spelling."""

    def __init__(self, own: Sequence[Term] = (), removed: Iterable[str] = ()) -> None:
        replaced = {parse_term(term.text) for term in own} | {parse_term(text) for text in removed}
        self._languages = builtin_languages()
        if replaced:
            self._languages = {
                name: one._replace(terms=Index(t for t in one.terms.terms if parse_term(t.text) not in replaced))
                for name, one in self._languages.items()
            }
        self._own = Index(own)
        self._latin = [name for name in self._languages if name not in _SCRIPTS]
        self._votes: dict[str, set[str]] = {}
        for name in (*self._latin, *_ALSO_LATIN):
            for term in self._languages[name].terms.terms:
                if term.kind == "common" and (name in self._latin or term.text.isascii()):
                    self._votes.setdefault(parse_term(term.text)[0], set()).add(name)

    def matcher(self, text: str, spoken: Iterable[str]) -> Matcher:
        """The terms of a text's languages, English after them; ``spoken``: its words."""
        groups = self.languages(text, spoken)
        indexes = [[self._languages[name].terms for name in group] for group in groups]
        if not any("en" in group for group in groups):
            indexes.append([self._languages["en"].terms])
        head_first = all(self._languages[name].head_first for group in groups for name in group)
        return Matcher(indexes, head_first, self._own if self._own.terms else None)

    def languages(self, text: str, spoken: Iterable[str]) -> list[list[str]]:
        """The languages of a text, the likeliest first: by its script, and by its function words if Latin.

        Without any function word it may be any Latin language, English first.
        """
        scripts = [] if text.isascii() else [name for name, script in _SCRIPTS.items() if script.search(text)]
        if "ja" in scripts and "zh" in scripts:
            scripts.remove("zh")  # kana: the characters are Japanese
        elif "zh" in scripts:
            scripts.append("ja")  # characters alone may be either
        votes = Counter(name for word in spoken for name in self._votes.get(word, ()))
        most = max(votes.values(), default=0)
        if not most:
            return [scripts] if scripts else [["en"], [name for name in self._latin if name != "en"]]
        first = [name for name, n in votes.items() if n == most]
        others = [name for name, n in votes.items() if LEAST_SHARE * most < n < most]
        return [list(dict.fromkeys([*scripts, *first])), others]


@lru_cache(maxsize=1)
def builtin_languages() -> dict[str, Language]:
    """The vocabulary files of the package, by the code of their language."""
    folder = resources.files("stakes.signals.requests") / "languages"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    languages = {}
    for file in files:
        record = tomllib.loads(file.read_text("utf-8"))
        head_first = record.pop("head", "") == "first"
        del record["language"]  # its name, for whoever reads the file
        languages[file.name.removesuffix(".toml")] = Language(Index(read_terms(record, file.name)), head_first)
    return languages


def read_terms(record: Mapping[str, Any], source: str) -> list[Term]:
    """The terms of a vocabulary file; an unknown key, something else than lists of text or a term twice is an error."""
    kind_of: dict[tuple[str, ...], str] = {}
    read = []
    for kind, terms in record.items():
        if kind not in KINDS:
            raise BadInput(f"{source} has the unknown key {kind!r}; the kinds of terms are {', '.join(KINDS)}")
        if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
            raise BadInput(f"{source}: {kind} must be a list of text")
        for text in terms:
            parts = parse_term(text)
            # function words may have a second kind
            if kind != "common" and kind_of.setdefault(parts, kind) != kind:
                raise BadInput(f"{source} lists {text!r} under {kind_of[parts]} and under {kind}; keep one")
            read.append(Term(kind, text))
    return read


def read_own(path: str | Path) -> dict[str, Any]:
    """A user's file as it stands: lists of terms by kind, ``fields`` (term to tier) and ``remove``."""
    try:
        record = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; requests:FILE takes a TOML file of fields and terms") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not a TOML file that can be read ({error})") from None
    return record
