"""The options of ``stakes data from-csv``, PDF pages as images, and what so many documents can show."""

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stakes.commands.options.inputs import tier_words
from stakes.data.sample import Sample
from stakes.data.table import OTHER, Fields, TableFile, find_column
from stakes.errors import BadInput
from stakes.formats import counted

MOST_PAGES = 2000


def find_named(table: TableFile, option: str, key: str, column: str | None) -> str:
    """The column that was named, or the only one with a common name."""
    if column is not None:
        return table.need(option, column)
    found = find_column(table, key)
    if found is None:
        raise BadInput(
            f"which column of {table.path} has the {key}? Give {option} with one of {', '.join(table.columns)}"
        )
    return found


def read_fields(
    table: TableFile, answers: Sequence[str], questions: Sequence[str], tiers: Sequence[str]
) -> tuple[Fields, dict[str, float]]:
    """The fields to ask for, and the cost of each tier."""
    words = tier_words("--tier", list(tiers))
    names = tuple(dict.fromkeys(answers)) or tuple(words) or tuple(filter(None, [find_column(table, "answers")]))
    if not names:
        fields = [name for name in table.columns if name != find_column(table, "image")]
        if not fields:
            raise BadInput(f"{table.path} has no column of answers beside its images; add one, such as total")
        raise BadInput(
            f"which columns of {table.path} hold answers, of {', '.join(fields)}? Give each with what a mistake in it "
            f"costs, such as --tier {shlex.quote(f'{fields[-1]}=20')}"
        )
    for name in names:
        table.need("--answer" if name in answers else "--tier", name)
    if strange := [name for name in words if name not in names]:
        raise BadInput(
            f"--tier {strange[0]}={words[strange[0]]}: {strange[0]} is not among the answers; add --answer {strange[0]}"
        )
    tier_of, costs = _tiers(names, words)
    asked, column = _questions(table, names, questions)
    return Fields(names, asked, tier_of, column), costs


def _tiers(names: Sequence[str], words: Mapping[str, str]) -> tuple[dict[str, str], dict[str, float]]:
    """The tier of each field, and the cost of each tier, most expensive first."""
    if not words:
        return {}, {}
    tier_of, costs = dict[str, str](), dict[str, float]()
    for name in names:
        value = words.get(name)
        if value is None:
            tier_of[name] = OTHER
            costs.setdefault(OTHER, 1.0)
        elif _is_number(value):
            if not 0 < float(value) < float("inf"):
                raise BadInput(f"--tier {name}={value}: a cost is above 0; write {name}=20")
            tier_of[name], costs[name] = name, float(value)
        elif _is_number(words.get(value, "")):
            tier_of[name] = value
        else:
            raise BadInput(f"--tier {name}={value}: {value!r} is neither a cost nor a field with one; write {name}=20")
    return tier_of, dict(sorted(costs.items(), key=lambda item: -item[1]))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _questions(table: TableFile, names: Sequence[str], words: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """The question of each field, or the column that holds the questions."""
    asked, column = dict[str, str](), None if words else find_column(table, "question")
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if equals and name in names:
            if not text:
                raise BadInput(f"--question {name}= is empty; write {name}='What is the {name}?'")
            asked[name] = text
        elif equals and name in table.columns:
            raise BadInput(f"--question {word!r}: {name} is not among the answers; add --answer {name}")
        elif word in table.columns:
            column = word
        elif "{field}" in word or len(names) == 1:
            asked |= {other: word for other in names if other not in asked}
        else:
            raise BadInput(
                f"--question {word!r} would be asked of {', '.join(names)} alike; write {names[0]}='…', or put "
                "{field} in it"
            )
    if column is not None and (asked or len(names) > 1):
        raise BadInput(
            f"the column {column} has one question a row; give one --answer with it, and no other --question"
        )
    return asked, column


def draw_pdf_pages(samples: Sequence[Sample], target: Path) -> list[Sample]:
    """The samples with images as paths from the samples file; PDF pages are drawn at 200 dpi into ``NAME-pages/``."""
    pages = {s.image for s in samples if s.image and s.image.partition("#")[0].lower().endswith(".pdf")}
    drawn = _draw(sorted(pages), target.with_name(f"{target.stem}-pages")) if pages else {}
    base = target.parent.absolute()
    return [
        replace(sample, image=os.path.relpath(Path(drawn.get(sample.image or "", sample.image or "")).absolute(), base))
        for sample in samples
    ]


def _draw(pages: Sequence[str], folder: Path) -> dict[str, Path]:
    from stakes.gateway.pdf.renderer import PdfRenderer
    from stakes.gateway.proxy.errors import Refused
    from stakes.gateway.settings import Limits

    drawn, renderer = dict[str, Path](), PdfRenderer(Limits(workers=1, images=MOST_PAGES))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in pages:
            path, _, number = name.partition("#")
            there = renderer.pages(Path(path).read_bytes(), "1", MOST_PAGES)
            if not number and len(there) > 1:
                raise BadInput(f"{path} has {len(there)} pages; write {Path(path).name}#1 for its first one")
            if int(number or 1) > len(there):
                raise BadInput(f"{name} is not there: the PDF has {counted(len(there), 'page')}")
            page = there[int(number or 1) - 1]
            drawn[name] = _unused(folder / f"{Path(path).stem}-{page.index + 1}.png", drawn.values())
            page.draw(page.width, page.height).save(drawn[name], compress_level=3)
    except Refused as error:
        raise BadInput(f"{path}: {error.message}") from None
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror}); choose another place with -o") from None
    finally:
        renderer.close()
    return drawn


def _unused(path: Path, used: Collection[Path]) -> Path:
    """The path, or one like it where two files of different folders have one name."""
    while path in used:
        path = path.with_name(f"_{path.name}")
    return path


def what_can_be_shown(units: Mapping[str, int], noun: str) -> str:
    """What a certificate could show at best, with so many independent units of each tier; empty without two tiers.

    The bound is that of ``certify`` for a tier without a mistake, at the level of a single choice of budgets.
    """
    from stakes.calibration.by_document import PARTS
    from stakes.calibration.certify.ceiling import upper_error
    from stakes.calibration.certify.certificate import CONFIDENCE
    from stakes.calibration.reading import LEAST

    if len(units) < 2:
        return ""
    level = 1 - (1 - CONFIDENCE) / len(units)
    parts = []
    for tier, count in units.items():
        held = count - count // PARTS
        parts.append(f"{tier} {upper_error([0] * held, [1] * held, level):.0%} ({counted(count, noun)})")
    few = [tier for tier, count in units.items() if count < LEAST]
    more = f" Too few to learn or certify a tier from: {', '.join(few)}." if few else ""
    return (
        f"With --certify, three quarters of them test the choice: even without one mistake there, at {CONFIDENCE:.0%} "
        f"confidence a tier's error is then known to be at most {', '.join(parts)}.{more}"
    )
