"""A study draws the samples that its options name, and its arms spend as the paper's do."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.data.hub.tables import HIGH, LOW, picture
from tests.experiments.test_tables import Scholar

from stakes.data.sample import read_samples
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import prepare_samples
from stakes.experiments.study import FLOOR, LEAST_TOKENS, Study
from stakes.experiments.tables import cross_task, models, within_task
from stakes.models.base import Mechanism
from stakes.published import figures
from stakes.signals import KeywordRule
from stakes.signals.keywords import KEYWORDS
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import open_image


def write_file(folder: Path, tiers: list[str]) -> Path:
    """Questions whose labels are ``tiers``; the keyword rule reads them as high and low in turn."""
    folder.mkdir()
    lines = []
    for i, tier in enumerate(tiers):
        (folder / f"{i // 2}.png").write_bytes(picture(756, 1008, i // 2))
        record = {"id": f"q{i}", "image": f"{i // 2}.png", "question": (HIGH, LOW)[i % 2], "answers": [f"{i}"]}
        lines.append(json.dumps(record | ({"tier": tier} if tier else {})) + "\n")
    (folder / "samples.jsonl").write_text("".join(lines))
    return folder / "samples.jsonl"


def test_tiers_of_a_samples_file_are_its_labels_unless_a_signal_is_named(tmp_path: Path) -> None:
    contrary = ["low", "high"] * 6  # the opposite of what the rule reads
    path = write_file(tmp_path / "labeled", contrary)
    study = Study(Scholar(), "scholar", tmp_path, per_tier=6, data={"docvqa": str(path)})
    assert [sample.tier for sample in study.questions(str(path))] == contrary
    by_rule = Study(Scholar(), "scholar", tmp_path, per_tier=6, signal=KeywordRule())
    assert [sample.tier for sample in by_rule.questions(str(path))] == ["high", "low"] * 6
    assert [sample.label for sample in by_rule.questions(str(path))] == contrary


def test_a_file_without_labels_needs_a_signal(tmp_path: Path) -> None:
    path = write_file(tmp_path / "plain", [""] * 4)
    with pytest.raises(BadInput, match="sample 'q0' has no tier; label it, or read tiers by a signal such as keywords"):
        Study(Scholar(), "scholar", tmp_path, per_tier=2).questions(str(path))


def test_content_gives_no_image_less_than_the_papers_floor(tmp_path: Path) -> None:
    model = Scholar()
    study = Study(model, "scholar", tmp_path, per_tier=8)
    model.learn([*study.questions("forms", 4), *study.questions("swatches", 8)], 1)
    name, samples = cross_task.workload(study)
    arms = study.arms(name, samples, {"high": 512, "low": 96}, {"high": 5, "low": 1})
    colors = arms.plan.budgets["content"][8:]
    assert set(colors) == {FLOOR} == {32}, "a solid color has no density at all"
    assert sum(arms.plan.budgets["content"]) == 8 * (512 + 96)


def bordered(size: tuple[int, int], border: int, shade: int) -> Image.Image:
    """A white page with bars of ink and a margin."""
    page = Image.new("RGB", size, "white")
    for top in (*range(border, size[1] - border - 40, 40), size[1] - border - 12):
        page.paste((shade, 0, 0), (border, top, size[0] - border, top + 12))
    return page


def test_margins_are_cut_off_where_the_papers_least_tokens_are_left(tmp_path: Path) -> None:
    path = write_file(tmp_path / "bordered", ["high", "low"] * 2)
    for i, border in enumerate((60, 200)):
        bordered((756, 1008), border, i).save(path.parent / f"{i}.png")
    whole = Study(Scholar(), "scholar", tmp_path / "runs", per_tier=2, data={"docvqa": str(path)})
    trimmed = replace(whole, trim=True)
    before, after = (study.questions(str(path)) for study in (whole, trimmed))
    assert [sample.size for sample in before] == [(756, 1008)] * 4
    assert [sample.size for sample in after] == [(656, 908)] * 2 + [(756, 1008)] * 2, "a border of 1 % is kept"
    assert [one.digest == other.digest for one, other in zip(before, after, strict=True)] == [False] * 2 + [True] * 2
    assert open_image(after[0].load()).size == after[0].size
    assert [sample.size for sample in trimmed.first(str(path), 3, "")] == [(656, 908)] * 2 + [(756, 1008)]
    forms = [study.questions("forms", 2) for study in (whole, trimmed)]
    assert forms[0][0].digest != forms[1][0].digest
    assert min(count_tokens("qwen2.5-vl", *sample.size) for sample in forms[1]) >= LEAST_TOKENS


def test_a_receipt_is_trimmed_and_then_enlarged(tmp_path: Path) -> None:
    path = write_file(tmp_path / "receipts", ["high", "low"])
    bordered((500, 900), 100, 0).save(path.parent / "0.png")
    data = {"docvqa": "sroie", "sroie": str(path)}
    study = Study(Scholar(), "scholar", tmp_path, per_tier=1, data=data)
    whole, trimmed = (replace(study, trim=trim).questions("sroie")[0] for trim in (False, True))
    assert whole.size[0] / whole.size[1] == pytest.approx(500 / 900, rel=0.01)
    assert trimmed.size[0] / trimmed.size[1] == pytest.approx(318 / 718, rel=0.01)
    assert LEAST_TOKENS <= count_tokens("qwen2.5-vl", *trimmed.size) < 1.1 * LEAST_TOKENS


@pytest.mark.parametrize("mechanism", ["deletion", "resolution"])
def test_answers_of_whole_and_of_trimmed_pages_live_in_one_folder(tmp_path: Path, mechanism: Mechanism) -> None:
    whole = Study(Scholar(), "scholar", tmp_path, per_tier=8, mechanism=mechanism)
    trimmed = replace(whole, trim=True)
    assert isinstance(whole.model, Scholar)
    for study in (whole, trimmed):
        whole.model.learn(study.questions("forms"), 600)
    first = within_task.measure(whole)
    assert within_task.measure(trimmed).comparison.rows
    logs = {
        study.log("forms", study.questions("forms"), Setting(mechanism, None, "relaxed")) for study in (whole, trimmed)
    }
    assert len(logs) == 2
    assert all(log.exists() for log in logs)
    asked = whole.model.answered
    assert within_task.measure(whole).comparison == first.comparison
    assert whole.model.answered == asked, "the log of whole pages is as it was"


def test_whole_words_end_the_scan_of_chartqa_at_the_published_row(real_data: Path) -> None:
    lines = (real_data / "questions" / "chartqa_test.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    rule = KeywordRule()
    plain = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in KEYWORDS), re.IGNORECASE)

    def stop(is_high: Callable[[str], bool]) -> int:
        seen = Counter[bool]()
        for row, question in enumerate(questions, start=1):
            seen[is_high(question)] += 1
            if min(seen[True], seen[False]) == 200:
                return row
        return 0

    assert stop(lambda text: rule(text).tier == "high") == figures()["sampling"]["chartqa_test"]["scanned"] == 568
    assert stop(lambda text: plain.search(text) is not None) == 555
    assert stop(lambda text: any(word in text.lower() for word in KEYWORDS)) == 659


def test_llavas_three_arms_fit_real_pages(real_data: Path) -> None:
    path = real_data / "docvqa" / "questions.jsonl"
    samples = prepare_samples(read_samples(path), path.parent, KeywordRule())
    plan = models.plan_rungs(samples, "llava-onevision")
    assert [sum(budgets) for budgets in plan.budgets.values()] == [plan.total] * 3
    means = {
        tier: sum(b for b, one in zip(plan.budgets["cost"], samples, strict=True) if one.tier == tier) / 300
        for tier in ("high", "low")
    }
    assert means == pytest.approx({"high": 4732, "low": 1306}, rel=0.03), "as published"
