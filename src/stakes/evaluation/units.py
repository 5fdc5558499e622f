"""What is independent of what? Documents, and documents that share a page are one.

A file may name its documents more finely than its pages, such as one a question. Answers about one page depend on each
other whatever their documents are called, and taken for independent they make every interval too narrow and a
certificate false. So documents with an image in common, by its digest, count as one unit, under the name of the first.

    >>> units(["a/1", "a/2", "b", "a/2"], ["page 1", "page 1", "page 2", "page 3"])
    ['a/1', 'a/1', 'b', 'a/1']
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stakes.evaluation.asked import Asked

SHOWN = 3


def units(documents: Sequence[str], digests: Sequence[str]) -> list[str]:
    """The unit of each sample: its document, or the first one that is joined to it by a chain of shared images."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    rank = {name: i for i, name in enumerate(dict.fromkeys(documents))}
    first_on: dict[str, str] = {}
    for document, digest in zip(documents, digests, strict=True):
        one, other = sorted((top(document), top(first_on.setdefault(digest, document))), key=rank.__getitem__)
        above[other] = one
    return [top(document) for document in documents]


def by_unit(asked: Iterable[Asked]) -> list[Asked]:
    """The samples with their units as documents; ``named`` keeps what the file calls them."""
    asked = list(asked)
    found = units([one.document for one in asked], [one.digest for one in asked])
    return [
        one if unit == one.document else replace(one, document=unit, named=one.document)
        for one, unit in zip(asked, found, strict=True)
    ]


def told_joined(asked: Iterable[Asked]) -> str:
    """Which documents were joined; empty where none was."""
    joined: dict[str, dict[str, None]] = {}
    for one in asked:
        if one.named:
            joined.setdefault(one.document, {})[one.named] = None
    if not joined:
        return ""
    count = len(joined) + sum(map(len, joined.values()))
    shown = [f"{first} with {_some(list(others))}" for first, others in list(joined.items())[:SHOWN]]
    more = f" and {len(joined) - SHOWN} more" if len(joined) > SHOWN else ""
    size = "one unit" if len(joined) == 1 else f"{len(joined)} units"
    return f"{count} documents share pages with others and count as {size}: {'; '.join(shown)}{more}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
