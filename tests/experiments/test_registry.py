"""Every file of ``experiments/tables`` is a table that declares its own options and data sets."""

import subprocess
import sys

import pytest

from stakes.errors import BadInput
from stakes.experiments.study import OFFLINE
from stakes.experiments.tables import TABLES, experiment

KNOWN = {
    "--model", "--data", "--per-tier", "--quick", "--signal", "--folder", "-o", "--mechanism", "--selector",
    "--judge", "--judge-model", "--judge-key-env", "--scale-model", "--architecture-model", "--trim",
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_declares_its_options_and_data_sets(name: str) -> None:
    module = experiment(name)
    assert {"--model", "--data", "--folder", "-o"} <= module.OPTIONS <= KNOWN
    assert "docvqa" in module.DATASETS
    assert set(module.DATASETS) <= set(OFFLINE)
    assert callable(module.asks)
    assert callable(module.table)


def test_the_tables_are_those_of_the_paper_its_open_cells_and_receipts() -> None:
    assert set(TABLES) == {
        "within-task", "cross-task", "frontier", "curves", "cross-dataset", "invariance", "mixed", "proportional",
        "diagnostics", "metrics", "labels", "latency", "map", "models", "receipts", "signals",
        "selector-curves", "tiers", "both-gaps", "escalation",
    }  # fmt: skip
    assert all(len(line) > 15 and not line.endswith(".") for line in TABLES.values())
    with pytest.raises(BadInput, match="there is no table 'nine'; choose one of both-gaps, cross-dataset"):
        experiment("nine")


def test_listing_the_tables_imports_none_of_them() -> None:
    code = "import sys; from stakes.experiments.tables import TABLES; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
