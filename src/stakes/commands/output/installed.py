"""Which packages of the core and of the extras are installed, by the metadata of this installation."""

import re
import sys
from dataclasses import dataclass
from importlib import metadata

PURPOSES = {
    "local": "models on this machine, the embedded reader included",
    "gateway": "stakes serve",
    "report": "pictures in reports",
    "telemetry": "sending OpenTelemetry from stakes serve",
    "hub": "datasets of the Hugging Face hub",
    "ray": "answering on several machines",
    "redis": "one hard budget over gateways on several hosts",
    "envoy": "stakes envoy",
    "ocr": "the legibility study",
    "vllm": "deletion inside vLLM, where vLLM runs",
    "pdf": "drawing PDFs in requests: stakes serve --pdf render",
}
"""What users need an extra for."""

DEVELOPER_EXTRAS = {"dev", "bench", "browser", "docs"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


@dataclass(frozen=True)
class Package:
    """A required package; ``extra`` is "" for the core, ``found`` its version, None if it is not installed."""

    name: str
    extra: str
    least: str
    found: str | None

    @property
    def good(self) -> bool:
        """Installed and new enough."""
        return self.found is not None and version_numbers(self.found) >= version_numbers(self.least)


def installed() -> list[Package]:
    """Every package of the core and of the extras for users, by the metadata of this installation."""
    packages = []
    for line in metadata.requires("stakes") or []:
        requirement, _, marker = line.partition(";")
        extra, match = _EXTRA.search(marker), _REQUIREMENT.match(requirement.strip())
        name = extra[1] if extra else ""
        # the only other marker in pyproject.toml
        other_system = "!= 'win32'" in marker.replace('"', "'") and sys.platform == "win32"
        if match and name not in DEVELOPER_EXTRAS and not other_system:
            packages.append(Package(match[1], name, match[2] or "0", version(match[1])))
    return packages


def version(name: str) -> str | None:
    """The installed version of a package, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def version_numbers(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` as (2, 13), which compares; trailing zeros are dropped."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
