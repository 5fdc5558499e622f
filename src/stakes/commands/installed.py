"""What of stakes is installed? Its own packages and those of each extra, beside the versions that it asks for.

installed()[0]          # Package('numpy', '', '2.0', '2.4.6')
"""

import re
import sys
from dataclasses import dataclass
from importlib import metadata

FOR_MAKERS = {"dev", "bench", "browser", "docs"}  # extras that no user needs
_WANTED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


@dataclass(frozen=True)
class Package:
    """A package that stakes asks for; ``extra`` is "" for its core, ``found`` None where it is not installed."""

    name: str
    extra: str
    least: str
    found: str | None

    @property
    def good(self) -> bool:
        """Installed and new enough."""
        return self.found is not None and numbers(self.found) >= numbers(self.least)


def installed() -> list[Package]:
    """Every package of the core and of the extras for users, as this installation's own metadata names them."""
    packages = []
    for line in metadata.requires("stakes") or []:
        wanted, _, marker = line.partition(";")
        extra, found = _EXTRA.search(marker), _WANTED.match(wanted.strip())
        name = extra[1] if extra else ""
        elsewhere = "!= 'win32'" in marker.replace('"', "'") and sys.platform == "win32"  # the one marker that we use
        if found and name not in FOR_MAKERS and not elsewhere:
            packages.append(Package(found[1], name, found[2] or "0", version(found[1])))
    return packages


def version(name: str) -> str | None:
    """The installed version of a package, None where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` as (2, 13): what can be compared; zeros at the end mean nothing."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
