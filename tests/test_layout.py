"""The layout stays easy to navigate: import order, sizes of files and folders, names, and the cost of importing."""

import ast
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import slowness

import stakes

ROOT = Path(stakes.__file__).parent
# A package imports only from packages above it.
ORDER = [
    "aliases",
    "errors",
    "formats",
    "notebooks",
    "files",
    "tiers",
    "http",
    "plugins",
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
    "vllm",
    "commands",
    "cli",
    "__main__",
]
TORCH_FREE = ["tiers", "signals", "budgets", "evaluation", "published", "data"]
TORCH_FREE_MODULES = [
    "stakes.vision.geometry", "stakes.vision.image.resize", "stakes.vision.image.decode",
    "stakes.vision.geometry.ladder", "stakes.calibration.arms.plan", "stakes.budgets.policy", "stakes.budgets.plan",
    "stakes.experiments.published", "stakes.cli",
]  # fmt: skip

# Reminders to look for something to remove before adding: they are what the package has.
MOST_FILES = 382
MOST_LINES = 300
MOST_FILES_IN_A_FOLDER = 16
LARGE_FOLDERS = {"vision/selectors", "experiments/tables"}
MOST_LINES_OF_CODE = 41_030
MOST_PARAMETERS = 8
MOST_LINES_OF_A_FUNCTION = 80
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _files() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def _functions(path: Path) -> Iterator[FUNCTION]:
    yield from (node for node in ast.walk(_tree(path)) if isinstance(node, FUNCTION))


def _is_kernel(function: FUNCTION) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _declares_options(function: FUNCTION, path: Path) -> bool:
    """Whether its parameters are the options of a command: annotated with types of ``typer.Option``."""
    text = path.read_text(encoding="utf-8")
    annotations = [ast.unparse(a.annotation) for a in [*function.args.args, *function.args.kwonlyargs] if a.annotation]
    options = [
        a for a in annotations if "typer." in a or f"{a} = Annotated[" in text or a in ("ModelSource", "Workers")
    ]
    return _package(path) == "commands" and len(options) > len(annotations) / 2


def code_lines(path: Path) -> int:
    """Lines of code: without blanks, comments and docstrings."""
    import io
    import tokenize

    text = path.read_text(encoding="utf-8")
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                lines -= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return len(lines)


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_package_imports_only_from_packages_above_it(path: Path) -> None:
    mine = ORDER.index(_package(path))
    for module in _imports(path):
        if module.startswith("stakes."):
            other = module.split(".")[1]
            assert ORDER.index(other) <= mine, f"{path} imports {module}, which is below it"


def test_there_are_few_files_and_none_is_long() -> None:
    files = list(ROOT.rglob("*.py"))
    assert len(files) <= MOST_FILES
    for path in files:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path
    assert sum(map(code_lines, files)) <= MOST_LINES_OF_CODE


def test_no_test_or_benchmark_is_long() -> None:
    project = Path(__file__).parent.parent
    files = [path for name in ("tests", "benchmarks", "training") for path in (project / name).rglob("*.py")]
    assert len(files) > 100
    assert [path.name for path in files if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES] == []


def test_no_folder_is_crowded() -> None:
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
    assert {name for name, count in folders.items() if count > MOST_FILES_IN_A_FOLDER} <= LARGE_FOLDERS


def test_no_public_class_name_is_defined_twice() -> None:
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_are_short_and_take_few_parameters() -> None:
    for path in ROOT.rglob("*.py"):
        for function in _functions(path):
            if _is_kernel(function) or _declares_options(function, path):
                continue
            given = function.args
            count = len(given.posonlyargs + given.args + given.kwonlyargs)
            assert count <= MOST_PARAMETERS, f"{path.relative_to(ROOT)}: {function.name} takes {count} parameters"
            length = (function.end_lineno or 0) - function.lineno + 1
            assert length <= MOST_LINES_OF_A_FUNCTION, f"{path.relative_to(ROOT)}: {function.name} has {length} lines"


def test_the_arithmetic_never_imports_torch() -> None:
    for path in _files():
        if _package(path) in TORCH_FREE:
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
    assert time.perf_counter() - started < 20 * slowness()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        stakes.nonsense  # noqa: B018
    assert set(stakes.__all__) <= set(dir(stakes))


def test_old_words_stand_only_in_the_table_of_aliases() -> None:
    import re

    old = re.compile(r"\b(dear|dearer|dearest|mended)\b", re.IGNORECASE)
    repository = ROOT.parents[1]
    kinds = {".py", ".md", ".json", ".js", ".css", ".html", ".j2"}
    for folder in (ROOT, repository / "docs", repository / "README.md"):
        for path in [folder] if folder.is_file() else folder.rglob("*"):
            if path.suffix in kinds and path != ROOT / "aliases.py" and "weights" not in path.parts:
                assert not old.search(path.read_text(encoding="utf-8")), path
