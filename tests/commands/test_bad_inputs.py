"""Bad input ends with exit status 2 and one sentence that names the cause and the remedy, never with a traceback."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.commands.test_newcomer import stakes

from stakes.commands.options import inputs
from stakes.commands.output import installed
from stakes.errors import BadInput

POLICY = {
    "schema": 2, "family": "qwen2.5-vl", "mean_budget": 304, "floor": 32, "fingerprint": "uncalibrated",
    "tiers": {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 32}},
    "signal": {"kind": "requests", "tiers": ["high", "low"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    Image.effect_noise((392, 280), 40).save(folder / "page.png")
    rows = [
        {"id": tier, "image": "page.png", "question": question, "answers": ["x"], "tier": tier}
        for tier, question in (("high", "What is the total?"), ("low", "Who signed?"))
    ]
    (folder / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "plain.jsonl").write_text(
        "".join(json.dumps({**row, "tier": None} | {"tier": ""}) + "\n" for row in rows)
    )
    (folder / "array.json").write_text(json.dumps(rows))
    (folder / "renamed.jsonl").write_text('{"file": "page.png", "query": "What?", "label": "x"}\n')
    (folder / "half.jsonl").write_text('{"id": "a", "question":\n')
    (folder / "policy.json").write_text(json.dumps(POLICY))
    (folder / "notes.json").write_text('{"my": "notes"}')
    (folder / "own.toml").write_text('mod = "observe"\n')
    (folder / "empty.csv").write_text("")
    (folder / "head.csv").write_text("file,total,date\n")
    (folder / "invoices.csv").write_text("file,total,date\npage.png,12.50,2026-01-02\n")
    (folder / "gone.csv").write_text("file,total\nmissing.png,12.50\n")
    (folder / "only.csv").write_text("file\npage.png\n")
    (folder / "sheet.xlsx").write_bytes(b"PK\x03\x04" + bytes(20))
    (folder / "nested.json").write_text('{"rows": [{"file": "page.png", "total": 1}]}')
    (folder / "web.csv").write_text("file,total\nhttps://example.com/page.png,1\n")
    (folder / "twice.csv").write_text("file,total,total\npage.png,1,2\n")
    return folder


WRONG = [
    ("plann", "No such command 'plann'.*plan.*see stakes --help"),
    ("plan --published docvqaa", "docvqaa.*docvqa"),
    ("plan --published docvqa --mean-budget 20", "give --mean-budget 32 or more"),
    ("plan --published docvqa --cost high=-5 --cost low=1", "cost.*high.*above 0|greater|positive"),
    ("plan --published docvqa --cost high", "--cost takes tier=value, such as high=5"),
    ("calibrate", "give either a samples file or --pages FAMILY"),
    ("calibrate gone.jsonl", "there is no file gone.jsonl; check the path"),
    ("calibrate half.jsonl", "line 1 of half.jsonl.*not JSON.*repair or remove"),
    ("calibrate good.jsonl --per-tier 5", "--per-tier 5 is for --pages.*leave it out"),
    ("evaluate good.jsonl --policy policy.json --per-tier 5", "--per-tier 5 is for --pages.*leave it out"),
    ("calibrate good.jsonl --pages forms", "not both"),
    ("calibrate --pages formz", "no page family 'formz'; choose one of forms"),
    ("calibrate --pages forms --per-tier 0", "at least one question of each tier is needed, not 0"),
    ("calibrate plain.jsonl --cost hihg=5 --cost low=1", "--cost names tier 'hihg'; did you mean high"),
    ("calibrate good.jsonl --cost hihg=5 --cost low=1", "label 'high' has no cost; give one"),
    ("calibrate good.jsonl --ceiling hihg=0.1 --certify", "--ceiling names tier 'hihg'.*write high="),
    ("calibrate good.jsonl --ceiling high=1.5 --certify", "no error rate; give one between 0 and 1"),
    ("calibrate good.jsonl --max-harm hihg=0.1", "harm limit is given for tier 'hihg'; the tiers are high, low"),
    ("calibrate good.jsonl --confidence 0.95", "add --certify"),
    ("calibrate good.jsonl --mean-budget 0", "the mean budget is 1 to"),
    ("calibrate good.jsonl --mean-budget 20 --grid 32,64", "smallest budget of the grid is 32, above.*give a smaller"),
    ("calibrate good.jsonl --mean-budget 90 --grid 32,64", "largest budget of the grid is 64, below.*smaller mean"),
    ("calibrate good.jsonl --grid 32,x", "--grid takes whole numbers with commas between"),
    ("calibrate good.jsonl --floor 900", "the floor of 900 lies above every budget.*lower it"),
    ("calibrate good.jsonl --mechanism delete", "resolution or deletion, not 'delete'"),
    ("calibrate good.jsonl --metric valu", "unknown metric 'valu'; choose one of value"),
    ("calibrate good.jsonl --signal learnt:x", "learnt:x cannot be imported.*install its package"),
    ("calibrate good.jsonl --key-env NO_SUCH_KEY --endpoint http://127.0.0.1:9/v1", "'NO_SUCH_KEY'.*is not set"),
    ("calibrate good.jsonl --endpoint ftp://x", "http"),
    ("calibrate good.jsonl --price -1", "--price -1 is no price; give dollars per million input tokens"),
    ("report policy.json --price 0", "--price 0 is no price; give dollars per million"),
    ("serve --policy policy.json --upstream http://127.0.0.1:9/v1 --price 0", "price"),
    ("calibrate good.jsonl -o .", "is a folder.*give its name, such as -o policy.json"),
    ("calibrate good.jsonl -o good.jsonl", "choose another name"),
    ("evaluate good.jsonl --policy notes.json", "notes.json is not a policy file"),
    ("evaluate good.jsonl --policy gone.json", "there is no policy file gone.json; make one"),
    ("evaluate good.jsonl --policy policy.json --cost high=2", "costs come from the policy"),
    ("serve --budget hihg=576 --budget low=96", "--budget names tier 'hihg'; did you mean high"),
    ("serve --budget high=576 --budget lwo=96", "--budget names tier 'lwo'; did you mean low"),
    ("serve --budget high=576", "--budget low=96"),
    ("serve --budget high=0 --budget low=1", "give at least 1 token"),
    ("serve", "give --policy FILE, or budgets of your own"),
    ("serve --policy policy.json --port 99999", "from 0 to 65535"),
    ("serve --policy policy.json --settings own.toml", "sets 'mod'.*did you mean 'mode'"),
    ("report gone.json", "there is no policy file gone.json; make one"),
    ("explain Total? --policy notes.json", "notes.json is not a policy file"),
    ("tokens 0x3", "width must be a whole number of pixels, at least 1"),
    ("data check gone.jsonl", "there is no file gone.jsonl; check the path"),
    ("calibrate array.json", "JSON array.*stakes data from-csv reads arrays"),
    ("calibrate renamed.jsonl", "a sample needs 'id'"),
    ("calibrate invoices.csv", "invoices.csv is CSV.*run: stakes data from-csv invoices.csv"),
    ("data from-csv gone-away.csv", "there is no file gone-away.csv; check the path"),
    ("data from-csv empty.csv", "empty.csv has no rows; the first line names the columns"),
    ("data from-csv head.csv", "head.csv has no rows"),
    ("data from-csv twice.csv", "two columns 'total'; rename one"),
    ("data from-csv gone.csv --tier total=20", "line 2: there is no file missing.png; give the folder.*--images"),
    (
        "data from-csv invoices.csv",
        "which columns of invoices.csv hold answers, of total, date.*such as --tier date=20",
    ),
    ("data from-csv invoices.csv --tier file=20", "file is the column of images, and no answer; give another column"),
    ("data from-csv only.csv", "no column of answers beside its images; add one"),
    ("data from-csv sheet.xlsx", "sheet.xlsx is a spreadsheet, not text; export its sheet as CSV"),
    ("data from-csv nested.json --tier total=20", "its documents are in 'rows'; save that array as a file"),
    ("data from-csv web.csv --tier total=20", "is an address, and images are files; download it"),
    (
        "data from-csv invoices.csv --images nosuch --tier total=20",
        "there is no folder nosuch: give that of the images",
    ),
    ("data from-csv invoices.csv --answer totl", "--answer totl: invoices.csv has no such column; it has file, total"),
    ("data from-csv invoices.csv --image scan --answer total", "--image scan.*no such column"),
    ("data from-csv invoices.csv --tier total=x", "'x' is neither a cost nor a field with one; write total=20"),
    ("data from-csv invoices.csv --tier total=-2", "a cost is above 0; write total=20"),
    ("data from-csv invoices.csv --answer total --tier date=5", "date is not among the answers; add --answer date"),
    ("data from-csv invoices.csv --tier total=2 --tier date=1 --question Read", "asked of total, date alike.*{field}"),
    ("data draw formz --out new", "no page family 'formz'; choose one of forms"),
    ("data fetch docvqaa --out new", "no benchmark is called 'docvqaa'; there are docvqa"),
    ("reproduce nosuch", "no table 'nosuch'; choose one of"),
    ("signal train good.jsonl", "only 1 labelled question of.*label at least 10"),
]


@pytest.mark.parametrize(("line", "says"), WRONG, ids=[line for line, _ in WRONG])
def test_a_bad_input_names_cause_and_remedy(here: Path, line: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    status, out, err = stakes(*line.split())
    message = err.splitlines()[-1]
    assert (status, out) == (2, ""), err
    assert message.startswith("stakes: ")
    assert "Traceback" not in err
    assert re.search(says, message), message


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(inputs, "NamedTemporaryFile", refuse)
    with pytest.raises(BadInput, match=r"policy.json cannot be written \(Read-only file system\); choose another"):
        inputs.check_writable(tmp_path / "policy.json")


def test_the_demo_names_all_that_it_lacks_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = installed.version
    monkeypatch.setattr(installed, "version", lambda name: None if name in ("torch", "jinja2") else there(name))
    status, _, err = stakes("demo", "-o", tmp_path / "demo")
    assert (status, err) == (2, "stakes: the demo needs torch, jinja2; run: pip install 'stakes[local,report]'\n")


@pytest.mark.parametrize("words", [["-h"], ["calibrate", "-h"], ["serve", "--help"], ["data", "check", "-h"]])
def test_help_names_no_type_beside_flags(words: list[str]) -> None:
    status, out, _ = stakes(*words)
    assert (status, "<bool>" in out, "-h" in out) == (0, False, True)


def test_the_version_has_a_short_option() -> None:
    assert stakes("-V") == stakes("--version")


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    program = tmp_path / "stakes"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stakes "$@"\n')
    program.chmod(0o755)
    script = f"""
    PATH={tmp_path}:$PATH
    eval "$(stakes --show-completion bash)"
    try() {{ COMP_WORDS=(stakes "$@"); COMP_CWORD=$#; _stakes_completion stakes; echo "${{COMPREPLY[@]}}"; }}
    try cal; try data ""; try calibrate --me
    """
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    commands, of_data, options = done.stdout.splitlines()
    assert commands == "calibrate"
    assert {"check", "draw", "fetch"} <= set(of_data.split())
    assert options.split() == ["--mean-budget", "--mechanism", "--metric"]
