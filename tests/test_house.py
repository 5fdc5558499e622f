"""The rules of the house that a machine can check: who may import whom, and what importing costs."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stakes

ROOT = Path(stakes.__file__).parent
ROOMS = [
    "aliases",
    "errors",
    "files",
    "tiers",
    "published",
    "vision",
    "signals",
    "data",
    "models",
    "legibility",
    "evaluation",
    "budgets",
    "calibration",
    "experiments",
    "report",
    "gateway",
    "commands",
    "cli",
]
TORCH_FREE = ["tiers", "signals", "budgets", "evaluation", "published", "data"]
TORCH_FREE_MODULES = [
    "stakes.vision.geometry", "stakes.vision.image.resize", "stakes.vision.image.decode",
    "stakes.calibration.arms.plan",
    "stakes.vision.geometry.ladder", "stakes.budgets.policy", "stakes.budgets.plan", "stakes.experiments.published",
    "stakes.cli",
]  # fmt: skip


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def _files() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def _room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_only_from_rooms_above_them(path: Path) -> None:
    mine = ROOMS.index(_room(path))
    for module in _imports(path):
        if module.startswith("stakes."):
            other = module.split(".")[1]
            assert ROOMS.index(other) <= mine, f"{path} imports {module}, which is below it"


def test_the_arithmetic_never_imports_torch() -> None:
    for path in _files():
        if _room(path) in TORCH_FREE:
            assert not any(module.split(".")[0] in {"torch", "transformers"} for module in _imports(path)), path


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_nothing_on_the_way_to_a_budget_loads_torch() -> None:
    imports = "; ".join(f"import {module}" for module in TORCH_FREE_MODULES)
    loaded = _run(
        f"import sys; {imports}; print([m for m in ('torch', 'transformers', 'sklearn') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_import_stakes_is_instant_and_light() -> None:
    heavy = _run(
        "import sys, stakes; print([m for m in ('torch', 'sklearn', 'scipy', 'scipy.stats', 'numpy', 'pydantic', 'PIL')"
        " if m in sys.modules])"
    )
    assert heavy.strip() == "[]"
    timing = "import time; t = time.perf_counter(); import stakes; print(time.perf_counter() - t)"
    assert min(float(_run(timing)) for _ in range(3)) < 0.3


def test_every_promised_name_can_be_imported() -> None:
    started = time.perf_counter()
    for name in stakes.__all__:
        assert getattr(stakes, name) is not None
    assert time.perf_counter() - started < 20
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        stakes.nonsense  # noqa: B018
    assert set(stakes.__all__) <= set(dir(stakes))
