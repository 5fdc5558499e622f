"""Where do a run's questions and pages come from? A samples file, or synthetic pages drawn again from their names.

source = from_samples("questions.jsonl", run)       # or from_pages("forms", run)
source["inv-17"].question, source["inv-17"].load()
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stakes.errors import BadInput
from stakes.report.run import Run


@dataclass(frozen=True)
class Asking:
    """One question of the run. ``tier``: as labelled in the file or on the page, where it is. ``load``: its image."""

    question: str
    answers: tuple[str, ...]
    task: str | None
    tier: str | None
    load: Callable[[], Any]


def from_samples(path: str | Path, run: Run) -> dict[str, Asking]:
    """The run's samples that a file holds; a file that holds none of them is the wrong one."""
    from stakes.data.images import image_source
    from stakes.data.jsonl import read_samples

    wanted = run.by_sample
    found = {
        sample.id: Asking(
            sample.question,
            sample.answers,
            sample.task,
            sample.tier,
            partial(image_source, sample, Path(path).parent),
        )
        for sample in read_samples(path)
        if sample.id in wanted
    }
    return _some(found, wanted, str(path))


def from_pages(family: str, run: Run) -> dict[str, Asking]:
    """The run's samples drawn again: their names say which page and which question."""
    from stakes.data.pages import draw

    found: dict[str, Asking] = {}
    pages: dict[str, Any] = {}
    for sample in run.by_sample:
        document, _, number = sample.rpartition("/")
        parts = document.split("/")
        if len(parts) != 3 or parts[0] != family or not (parts[2].isdigit() and number.isdigit()):
            continue
        if document not in pages:
            pages[document] = draw(family, int(parts[2]), parts[1]).questions
        if int(number) < len(pages[document]):
            asked = pages[document][int(number)]
            load = partial(_drawn, family, int(parts[2]), parts[1])
            found[sample] = Asking(asked.text, asked.answers, None, asked.tier, load)
    return _some(found, run.by_sample, f"{family} pages")


def _drawn(family: str, seed: int, split: str) -> Any:
    from stakes.data.pages import draw

    return draw(family, seed, split).image


def _some(found: dict[str, Asking], wanted: Mapping[str, object], where: str) -> dict[str, Asking]:
    if wanted and not found:
        raise BadInput(
            f"none of the run's {len(wanted)} samples is in {where}; the first is {next(iter(wanted))!r}. Give the "
            "file or the page family that the run was made with"
        )
    return found
