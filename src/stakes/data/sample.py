"""One question about one image, with its acceptable answers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """What is asked. ``document`` groups the questions on one page, which are not independent of each other."""

    id: str
    image: str | None  # a path relative to the samples file, a file: URL or a data: URL; None for text-only files
    question: str
    answers: tuple[str, ...]
    task: str | None = None
    tier: str | None = None
    document: str | None = None
