"""What does the trainer see of a page? One row of bytes: pixels, question slots, glyphs.

    page = families.draw("forms", 7)
    row = np.zeros(Layout(*page.image.size).bytes, np.uint8)
    fill(row, page, random.Random(7))

A row is contiguous, so that a page crosses from a render worker to the GPU in one copy. Early in training a row holds a
small window of a page instead (``crop``): reading starts sooner on a few fields than on a full page.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass

import numpy as np
from PIL import Image
from training.reader import ID, TAIL, encode

from stakes.data.synthetic.page import Glyph, Page, Question

QUESTIONS, LENGTH, GLYPHS = 32, 96, 4608  # slots a page, tokens a slot (question, answer, end), glyphs a page
LONG, SHORT = {"documents"}, 60  # families whose slots are filled to LENGTH, and the limit of all others
FIELD_CLASSES = 256  # fields are hashed into these; class 0 is "no answer here"
NAMES = re.compile(r"[A-Z][a-z]{2,}|\d[\d,.%]*\d")  # what a question quotes from the page
HARD = {"mark", "series", "category", "extreme"}  # what charts ask last read: values found by name, colour or place
FIRST = {"total", "date", "company"}  # what receipts are asked for most
SUFFIXES = ["", "", " Answer briefly.", "\nAnswer the question using a single word or phrase."]

# name, shape, dtype of everything after the pixels; two-byte fields first keep the offsets aligned
FIELDS = [
    ("glyphs", (GLYPHS, 4), np.int16),  # x, y in pixels, character class, field class
    ("qa", (QUESTIONS, LENGTH), np.uint8),
    ("start", (QUESTIONS,), np.uint8),  # first token of the answer
    ("end", (QUESTIONS,), np.uint8),  # one past the answer's <|im_end|>
    ("tier", (QUESTIONS,), np.uint8),  # 1: high
    ("n", (1,), np.uint8),  # questions in use
]


@dataclass(frozen=True)
class Layout:
    """Where each part of a row stands, for a canvas of ``width x height`` pixels."""

    width: int
    height: int

    @property
    def pixels(self) -> int:
        """Bytes of the image, padded to 64."""
        return -(-self.width * self.height * 3 // 64) * 64

    def parts(self) -> list[tuple[str, int, int, tuple[int, ...], type]]:
        """(name, first byte, last byte + 1, shape, dtype) of every field."""
        out, at = [], self.pixels
        for name, shape, dtype in FIELDS:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            out.append((name, at, at + size, shape, dtype))
            at += size
        return out

    @property
    def bytes(self) -> int:
        """Length of a row, padded to 64."""
        return -(-self.parts()[-1][2] // 64) * 64


def field_class(field: str) -> int:
    """1 .. FIELD_CLASSES - 1, the same on every machine; a few fields share one, which costs the head nothing."""
    return zlib.crc32(field.encode()) % (FIELD_CLASSES - 1) + 1


# What people add to a question about a document; it never changes the answer.
TAILS = (
    "as per the document|mentioned in the document|given in the document|according to the document|in this page"
    "|as mentioned in the given document|as shown here|based on the document|in the given form|as stated on the page"
    "|in this document, please|that is written here|as per the given page|printed on this sheet"
).split("|")
LEADS = (
    "According to the document, |As per the document, |In this document, |From the given page: |Please tell me, "
    "|Can you find it: |In the page shown, |Based on what is printed, "
).split("|")
LETTERS = "abcdefghijklmnoprstuvwy"


def length(kind: str) -> int:
    """Tokens of a slot that pages of this kind use."""
    return LENGTH if kind in LONG else SHORT


def lengthen(text: str, rng: random.Random) -> str:
    """In 35 % more words before or behind a question, known ones or noise: real questions are often long."""
    x = rng.random()
    if x < 0.15:
        text = text.rstrip("?. ") + " " + rng.choice(TAILS) + rng.choice("??? .")
    elif x < 0.25:
        text = rng.choice(LEADS) + text[:1].lower() + text[1:]
    elif x < 0.35:
        noise = ["".join(rng.choices(LETTERS, k=rng.randint(2, 8))) for _ in range(rng.randint(1, 5))]
        text = " ".join([text.rstrip("?. "), *noise]) + rng.choice("??? .")
    return text


def reword(text: str, rng: random.Random) -> str:
    """Small changes of wording, so that the reader does not lean on the exact template."""
    x = rng.random()
    if x < 0.06:
        text = text.lower()
    elif x < 0.10:
        text = text.rstrip("?.")
    elif x < 0.14 and len(text) > 12:
        i = rng.randrange(1, len(text) - 1)
        text = text[:i] + text[i + 1 :]
    elif x < 0.26:  # an opening it has never met: the noun has to be enough
        words = text.split(" ")
        for i in rng.sample(range(min(3, len(words) - 1)), min(2, max(0, len(words) - 2))):
            words[i] = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 6)))
        text = " ".join(words)
    return text + rng.choice(SUFFIXES)


def wanted(page: Page, question: Question) -> float:
    """How likely a question is asked: large print and the words around a chart are read long before the rest."""
    if page.family == "charts":
        return 1.0 if question.field in HARD else 0.6
    if page.family == "receipts":
        return 1.0 if question.field in FIRST else 0.7
    if page.family == "shapes":
        return 1.0 if question.field == "count" else 0.3
    if page.family != "forms" or question.box is None:
        return 1.0
    height = question.box[3] - question.box[1]
    return 0.35 if height >= 16 else 0.6 if height >= 12 else 1.0


def fill(row: np.ndarray, page: Page, rng: random.Random, augment: bool = True) -> int:
    """Write a page into ``row``; returns the number of questions that fitted (0: the row is not usable)."""
    layout = Layout(*page.image.size)
    row[: layout.width * layout.height * 3] = np.asarray(page.image.convert("RGB"), np.uint8).reshape(-1)
    view = {name: row[a:b].view(dtype).reshape(shape) for name, a, b, shape, dtype in layout.parts()}
    for part in view.values():
        part[...] = 0
    chosen = [q for q in page.questions if not augment or rng.random() < wanted(page, q)]
    rng.shuffle(chosen)
    n = 0
    for q in chosen:
        answer = [*encode(q.answers[0]), ID["<|im_end|>"]]
        text = lengthen(q.text, rng) if augment and page.family in LONG else q.text
        ids = encode(reword(text, rng) if augment else text) + TAIL
        if n == QUESTIONS or len(ids) + len(answer) > length(page.family) or ID["<|unk|>"] in answer:
            continue
        view["qa"][n, : len(ids) + len(answer)] = ids + answer
        view["start"][n], view["end"][n] = len(ids), len(ids) + len(answer)
        view["tier"][n] = q.tier == "high"
        n += 1
    view["n"][0] = n
    classes = [field_class(q.field) for q in page.questions] + [0]  # question -1 is the last: no answer
    glyphs = [(g.x, g.y, ord(g.char) - 31, classes[g.question]) for g in page.glyphs if " " < g.char <= "~"]
    if glyphs:
        view["glyphs"][: len(glyphs)] = np.array(glyphs[:GLYPHS], np.float32).astype(np.int16)
    return n


def crop(page: Page, width: int, height: int, rng: random.Random) -> Page | None:
    """A window of the page around one answer, with the questions whose answers (and likely labels) lie inside.

    Labels stand to the left of an answer or above it, so the answer sits right of and below the window's middle, and a
    question stays only when there is room for a label on one of those sides, and when every name and number that it
    mentions (a table's row, a year) is printed inside.
    """
    boxed = [q for q in page.questions if q.box]
    if not boxed or page.image.width < width or page.image.height < height:
        return None
    left, top, right, bottom = rng.choice(boxed).box
    x = round((left + right) / 2 - width * rng.uniform(0.45, 0.8))
    y = round((top + bottom) / 2 - height * rng.uniform(0.35, 0.8))
    x = max(0, min(x, page.image.width - width))
    y = max(0, min(y, page.image.height - height))
    inner = [g for g in page.glyphs if x <= g.x < x + width and y <= g.y < y + height]
    printed = "".join(g.char for g in inner)
    kept: list[Question] = []
    number = {-1: -1}
    for i, q in enumerate(page.questions):
        number[i] = -1
        if q.box is None:
            continue
        a, b, c, d = q.box
        inside = x <= a and c <= x + width and y <= b and d <= y + height
        label = a - x >= min(width // 3, a) or (b - y >= 3 * (d - b) and a - x >= min(width // 8, a))
        mentioned = NAMES.findall(q.text.partition(" ")[2])
        if inside and label and all(name in printed for name in mentioned):
            number[i] = len(kept)
            kept.append(Question(q.text, q.answers, q.tier, (a - x, b - y, c - x, d - y), q.field))
    if not kept:
        return None
    image: Image.Image = page.image.crop((x, y, x + width, y + height))
    glyphs = tuple(Glyph(g.x - x, g.y - y, g.char, number[g.question]) for g in inner)
    return Page(page.family, page.document, image, tuple(kept), glyphs)
