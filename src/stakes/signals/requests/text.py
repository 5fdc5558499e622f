"""Text as the vocabulary sees it: normalised, split into clauses, each with its words.

Case, width and accents do not matter, nor how a name is joined: ``totalAmount``, ``total_amount`` and ``Total Amount``
are the same words. Arabic words lose their article. A run of Chinese, Japanese, Korean or Thai is one word; the
vocabulary looks inside it.

Few-shot examples are left out, and the field names of JSON that is written out are found.

>>> [clause.words for clause in clauses("What is the totalAmt? Réponds en français.")]
[('what', 'is', 'the', 'total', 'amt'), ('reponds', 'en', 'francais')]
"""

import re
from dataclasses import dataclass
from unicodedata import combining, normalize

from stakes.signals.linear import UNSPACED

MOST_TEXT = 12_000
"""Characters of one text that are read; of a longer one the first 8,000 and the last 4,000."""
_HEAD, _TAIL = 8_000, 4_000
_MARKS = r"\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0962\u0963"  # Devanagari vowel signs belong to the word
_WORD = re.compile(rf"\bn[o°º]\.|[{UNSPACED}]+|(?:[^\W_{UNSPACED}]|[{_MARKS}])+|[#%&,/]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ACCENTED = re.compile(r"[\u00aa-\u024f\u0600-\u06ff\u1e00-\u1eff\u0300-\u036f]")
_ARTICLE = re.compile(r"(?<![\u0620-\u064a])[وف]?(?:[بك]?ال|لل)(?=[\u0620-\u064a]{2})")  # "and", "with", "for", "the"
_LETTERS = str.maketrans("أإآىةؤئıłøđ", "اااي\u0647ويilod", "ـ")
# A full stop ends a clause only before a space, and not after "no.", "nr.", "Dr." and the like.
_END = re.compile(
    r"(?:(?<!\bno)(?<!\bnr)(?<!\bnum)(?<!\bdr)(?<!\bmr)(?<!\be\.g)(?<!\bi\.e)[.!;](?=\s|$)|(?<=\bno)\.(?=\s+[A-Z]|\s*$)|[?؟。！？；।]|\n)+",
    re.IGNORECASE,
)
_BULLET = re.compile(r"\s*(?:#{1,6}|[-*•–·]|\d{1,2}[.)]|[a-z][.)])\s+")
_ASKS = re.compile(r"[?？؟]")


_TAGGED = re.compile(
    r"<(examples?|few[-_]?shots?|categories|classes|labels|options|context|meta(?:data)?)\b[^>]*>.*?(?:</\1>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# a paragraph that opens with "Example", "Examples:", "### Example 2", "Beispiel:", "例:" …
_OPENS = re.compile(
    r"\W*(?:for\s+)?(?:examples?|e\.g|sample (?:input|output)s?|few[- ]shots?|beispiele?|zum beispiel|z\.b|exemples?"
    r"|ejemplos?|esempi[oi]?|exemplos?|voorbeeld(?:en)?|przykład(?:y)?|örnek(?:ler)?|例|示例|例子|예시|예|مثال|أمثلة|उदाहरण)\b",
    re.IGNORECASE,
)
# lines of a dialogue that is written out
_ASKED = re.compile(
    r"\s*(?:q|question|input|user|human|frage|pregunta|domanda|pergunta|vraag|pytanie|soru|問|问|질문|سؤال|प्रश्न)\s*\d*\s*[:：]",
    re.IGNORECASE,
)
_ANSWERED = re.compile(
    r"\s*(?:a|answer|output|assistant|ai|antwort|réponse|respuesta|risposta|resposta|antwoord|odpowiedź|cevap|答|답|جواب|उत्तर)"
    r"\s*\d*\s*[:：]|.*\s(?:->|=>|→)\s",
    re.IGNORECASE,
)
_PAIR = re.compile(r"\b[\w.-]+=[^\s;,]+")  # user_id=1882: data, not a question
_KEY = re.compile(r"""["'“]([^"'“”{}\[\]:,\n]{1,60})["'”]\s*:""")


@dataclass(frozen=True)
class Clause:
    """A sentence, a line or a list item; ``asks``: it ends in a question mark; ``item``: it is a list item."""

    words: tuple[str, ...]
    asks: bool = False
    item: bool = False


def cut(text: str) -> str:
    """The text, or the beginning and the end of one that is too long to read whole."""
    return text if len(text) <= MOST_TEXT else f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def fold(text: str) -> str:
    """The text in one spelling: width, case and accents of Latin and Arabic letters removed."""
    if text.isascii():
        return text.lower()
    text = normalize("NFKC", text).casefold()
    if _ACCENTED.search(text):
        # only letters that carry accents are taken apart: Korean and Hindi must stay whole
        text = _ACCENTED.sub(lambda letter: _bare(letter.group()), text)
    text = text.translate(_LETTERS)
    return _ARTICLE.sub("", text)


def _bare(letter: str) -> str:
    return "".join(part for part in normalize("NFD", letter) if not combining(part))


def words(text: str) -> tuple[str, ...]:
    """The words of a text, joined names split."""
    return tuple(_WORD.findall(fold(_CAMEL.sub(" ", text))))


def clauses(text: str) -> list[Clause]:
    """The clauses of a text, in order; empty ones are left out."""
    found, start = [], 0
    text = _CAMEL.sub(" ", text)
    for end in [*_END.finditer(text), None]:
        stop = len(text) if end is None else end.start()
        line = text[start:stop]
        item = _BULLET.match(line)
        parts = tuple(_WORD.findall(fold(line[item.end() :] if item else line)))
        if parts:
            asks = end is not None and _ASKS.search(end.group()) is not None
            found.append(Clause(parts, asks, item is not None))
        start = stop if end is None else end.end()
    return found


def without_examples(text: str) -> str:
    r"""The text without examples: marked ones, and question lines that an answer line follows.

    >>> without_examples("Read the label.\n\nExample:\nQ: What is the total?\nA: 42.90")
    'Read the label.'
    """
    if "<" in text:
        text = _TAGGED.sub("\n", text)
    if "=" in text:
        text = _PAIR.sub(" ", text)
    if "\n" not in text:
        return text
    kept, skipping = [], False
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not line.strip():
            skipping = False
        elif _OPENS.match(line):
            skipping = True
        elif _ANSWERED.match(line) or (_ASKED.match(line) and any(map(_ANSWERED.match, lines[i + 1 : i + 4]))):
            continue
        if not skipping:
            kept.append(line)
    return "\n".join(kept).strip()


def json_keys(text: str) -> tuple[str, ...]:
    """The keys of JSON in a text, complete or not.

    >>> json_keys('Return {"invoice_number": "...", "total": 0}')
    ('invoice_number', 'total')
    """
    return tuple(dict.fromkeys(_KEY.findall(text))) if ":" in text else ()
