"""What was it measured on? Machine, versions and date for results files, and tables for the terminal.

Names of hosts stay out: cores, the kind of processor and the versions say what a reader needs.
"""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stakes.commands.output import as_markdown


def about(*libraries: str) -> dict[str, Any]:
    """Cores, processor, versions of Python and of the libraries named, and the date."""
    versions = {}
    for name in libraries:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        **versions,
        "date": time.strftime("%Y-%m-%d"),
    }


def processor() -> str:
    """The processor's name as the system gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def about_table(facts: dict[str, Any]) -> dict[str, Any]:
    """Machine, versions and date as a table of one row."""
    return {"columns": list(facts), "rows": [[str(value) for value in facts.values()]]}


def printed(table: dict[str, Any]) -> str:
    """A table of a results file as text."""
    return as_markdown(table["columns"], table["rows"])
