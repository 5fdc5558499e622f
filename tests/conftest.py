"""Shared by all tests: where real datasets are, when a person has them."""

from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: timings of a shared machine say nothing. Derandomised: a commit is green or not, twice alike.
settings.register_profile("stakes", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("stakes")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--real-data",
        type=Path,
        default=None,
        help="a folder with real questions in the sample format (docvqa/, chartqa/, sroie/, questions/); "
        "tests that need it are skipped without",
    )
    parser.addoption(
        "--engine",
        default=None,
        help="a command that serves a checkpoint by vLLM, as COMMAND CHECKPOINT PORT; its tests are skipped without",
    )


@pytest.fixture(scope="session")
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder given by --real-data; the test is skipped, visibly, where there is none."""
    folder: Path | None = request.config.getoption("--real-data")
    if folder is None:
        pytest.skip("needs --real-data DIR")
    return folder
