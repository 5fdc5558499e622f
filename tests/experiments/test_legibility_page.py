"""docs/legibility.md says what the results files say, and neither holds anything of the real pages."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILES = [DOCS / "results" / f"{name}.json" for name in ("legibility", "legibility-agreement", "hybrid")]
# lines may break anywhere, and prose has real minus signs
PAGE = " ".join((DOCS / "legibility.md").read_text(encoding="utf-8").replace("−", "-").split())


@pytest.fixture(scope="module")
def found() -> Any:
    return json.loads(FILES[0].read_text(encoding="utf-8"))


def rows(arms: Any) -> dict[str, Any]:
    return {row["arm"]: row for row in arms["comparison"]["rows"]}


def gain(value: Any) -> str:
    """+0.027 [-0.005, +0.077], or without plus signs in the brackets where both ends are above 0."""
    sign = "+" if value["low"] < 0 < value["high"] else ""
    return f"{value['value']:+.3f} [{value['low']:.3f}, {sign}{value['high']:.3f}]"


def test_tables_and_findings_are_those_of_the_results(fill: ModuleType) -> None:
    text = (DOCS / "legibility.md").read_text(encoding="utf-8")
    tables = fill.read_tables(FILES)
    assert fill.filled(text, tables) == text
    for name in tables:  # none is left out
        assert f"<!-- table {name} -->" in text
        assert f"<!-- findings {name} -->" in text
    some = next(iter(tables))
    tables[some] = {**tables[some], "rows": [[0] * len(tables[some]["columns"])]}
    assert fill.filled(text, tables) != text


def test_gains_in_the_summary_are_those_of_the_results(found: Any) -> None:
    sets = found["sets"]
    for name in ("docvqa", "chartqa", "sroie"):
        assert gain(rows(sets[name]["arms"])["cost"]["gain"]) in PAGE
    assert gain(rows(sets["sroie"]["arms"])["print"]["gain"]) in PAGE
    assert gain(sets["docvqa"]["held_out"]["gain"]) in PAGE
    assert gain(sets["docvqa"]["scarce"]["gain"]) in PAGE
    mixed = found["mixed"]["arms"]
    for arm in ("cost", "print", "cost+print"):
        assert gain(rows(mixed)[arm]["gain"]) in PAGE
    assert f"both against cost alone {gain(mixed['composed'])}" in PAGE


def test_figures_in_the_summary_are_those_of_the_results(found: Any) -> None:
    sets = found["sets"]
    cost = {name: rows(one["arms"])["cost"] for name, one in sets.items()}
    dear = cost["docvqa"]["dear"]
    assert f"{dear['b']} put right and {dear['c']} put wrong" in PAGE
    assert f"pays from r = {cost['docvqa']['break_even']:.2f} on DocVQA" in PAGE
    assert f"{cost['sroie']['break_even']:.2f} on SROIE and never on ChartQA" in PAGE
    assert cost["chartqa"]["break_even"] is None
    slopes = {name: one["slopes"] for name, one in sets.items()}
    assert f"not told apart (p = {slopes['docvqa']['p']:.2g} by documents)" in PAGE
    assert f"p = {slopes['sroie']['p']:.2g} by documents, {slopes['sroie']['permutation_p']:.2g} permuted" in PAGE
    assert f"ChartQA's do not (p = {slopes['chartqa']['p']:.2g})" in PAGE
    assert f"not quite parallel (p = {slopes['docvqa']['parallel_p']:.3f}" in PAGE
    long, short = (sets["sroie"]["length"][tier] for tier in ("low", "high"))
    assert f"have {long:g} characters at the median, amounts and dates {short:g}" in PAGE
    for held, share in (("held_out", 3), ("scarce", 13)):
        tested = sets["docvqa"][held]
        assert round(100 * (tested["mean_tokens"] / tested["uniform_mean_tokens"] - 1)) == share
    assert "this takes 3 % and 13 % more tokens" in PAGE
    ranks = [half["rank"] for half in sets["docvqa"]["split_half"].values()]
    assert f"rank {', '.join(map(str, ranks))} of 13" in PAGE
    assert max(half["gap"] for half in sets["docvqa"]["split_half"].values()) <= 0.0275
    low, _, high = sets["docvqa"]["arms"]["ranges"]["content"]
    assert f"from {low} to {high} tokens on DocVQA" in PAGE
    assert f"rank correlation {sets['sroie']['arms']['content_print_rank']:.2f}" in PAGE
    assert f"those {sum(sets['chartqa']['apart'].values())} questions are set apart" in PAGE
    assert sets["docvqa"]["optimum"]["5"] == [384, 224]


def test_agreement_and_hybrid_are_those_of_the_results() -> None:
    by_how = json.loads(FILES[1].read_text(encoding="utf-8"))["alignments"]
    resized, deleted = by_how["resolution"]["all"], by_how["deletion"]["all"]
    for one, words in ((resized, "{:,} right answers only {}"), (deleted, "{1} of {0:,} right answers")):
        alone = sum(one["only_first"])
        assert words.format(sum(one["both"]) + alone, alone) in PAGE
    assert f"rank correlation {resized['rank_of_questions']:.2f}" in PAGE
    assert f"rank correlation {deleted['rank_of_questions']:.2f}" in PAGE
    assert f"about {2 ** resized['shift']:.2f} times" in PAGE
    measured = json.loads(FILES[2].read_text(encoding="utf-8"))["mechanisms"]
    needed = {
        how: {way: [row[way] for row in one["needed"].values()] for way in ("pooled", "hybrid")}
        for how, one in measured.items()
    }
    # passes are these, times two tiers and 13 budgets: the prior saves none on the reader, half on the smaller one
    for how in ("resolution", "deletion"):
        pairs = zip(needed[how]["pooled"], needed[how]["hybrid"], strict=True)
        assert sum((b or 99) < (a or 99) for a, b in pairs) == (how == "resolution")
    assert needed["small-deletion"] == {"pooled": [40, 20, 10, 10], "hybrid": [40, 10, 10, 5]}
    gains = {
        how: [gain[0] for row in one["gain_over_pooled"].values() for gain in row.values()]
        for how, one in measured.items()
    }
    assert f"costs up to {-min(gains['resolution']):.3f} of CWE here" in PAGE
    assert min(gains["resolution"]) == measured["resolution"]["gain_over_pooled"]["5"]["5"][0]
    assert f"gains up to {max(gains['small-resolution']):.3f} of CWE" in PAGE
    few, more, most = (measured["resolution"]["cwe"][way] for way in ("hybrid 5", "raw 20", "raw 40"))
    assert all(few[ratio] < more[ratio] for ratio in few)  # better than the plain argmin on 20
    assert all(few[ratio] < most[ratio] + 0.002 for ratio in few)  # and as well as on 40


def test_no_text_of_a_real_page_is_in_the_results(real_data: Path) -> None:
    told = "".join(path.read_text(encoding="utf-8") for path in FILES) + PAGE
    for name in ("docvqa", "chartqa", "sroie"):
        for line in (real_data / name / "questions.jsonl").read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            assert sample["question"] not in told
            assert not any(len(answer) > 12 and answer in told for answer in sample["answers"])
