"""What stands in a file of measured tables? Who answered, with which versions, and the command that makes it again.

save_json(path, clean(added({"model": …, "versions": versions(), "tables": …}, path)))
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.commands.reproduce_options import TAKES

if TYPE_CHECKING:
    from stakes.experiments.study import Study


def added(record: dict[str, Any], path: Path) -> dict[str, Any]:
    """The record with the other tables of a file that the same model and versions made before."""
    try:
        old = json.loads(path.read_text("utf-8"))
        same = all(old[part] == record[part] for part in ("model", "versions"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return record
    return record | {"tables": old["tables"] | record["tables"]} if same else record


def command_of(table: str, model: str, data: list[str], study: "Study", signal: str, judge: str | None) -> str:
    """What makes this file again, without the places of this machine."""
    parts = [f"stakes reproduce {table}"]
    parts += [f"--per-tier {study.per_tier}"] if "--per-tier" in TAKES[table] else []
    parts += [f"--mechanism {study.mechanism}"] if "--mechanism" in TAKES[table] else []
    parts += [f"--signal {signal}"] if signal != "tier" else []
    parts += [f"--model {Path(model).name if Path(model).exists() else model}"] if model != "embedded" else []
    parts += [f"--selector {spec}" for spec in study.selectors]
    parts += [f"--data {word.partition('=')[0]}" for word in data]
    if judge is not None and study.judge is not None:
        served = f"http://HOST/v1 --judge-model {study.judge.name}"
        parts += [f"--judge {Path(judge).name if study.judge.offline else served}"]
    return " ".join(parts)


def versions() -> dict[str, str]:
    """What answered: the packages whose version can change a figure."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in ("stakes", "torch", "transformers", "numpy", "pillow"):
        found[name] = metadata.version(name)
    return found
