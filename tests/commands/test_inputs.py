"""Notes on how questions were read and answered."""

from stakes.commands.options.inputs import note_on_partial_answers, note_on_reading
from stakes.data.sample import Sample
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import KeywordRule


def sample(name: str, *answers: str) -> Sample:
    return Sample(name, "What is the total?", answers, tier="high", document=name)


def outcome(sample: str, prediction: str, metric: str = "relaxed", correct: bool = True) -> Outcome:
    score = float(correct)
    return Outcome(
        sample, sample, "high", "resolution", None, 304, 972, 304, prediction, False, score, correct, metric, 1.0, "r"
    )


def test_correct_answers_that_are_only_a_part_are_counted() -> None:
    both = [sample("a", "11,932"), sample("b", "$45")]
    note = note_on_partial_answers(both, [outcome("a", "1,932"), outcome("b", "45"), outcome("a", "11,932")])
    assert note.startswith("1 of 3 correct answers are only a part of the true one, such as '1,932' for '11,932'")
    assert note_on_partial_answers(both, [outcome("b", "45"), outcome("a", "7", correct=False)]) == ""
    assert note_on_partial_answers(both, [outcome("a", "1,932", metric="anls")]) == ""


def test_keywords_that_occur_in_no_question_are_noted() -> None:
    assert "no keyword is in any of these 2 questions" in note_on_reading(KeywordRule(["Kaution"]), ["Who?", "total?"])
    assert note_on_reading(KeywordRule(["Kaution"]), ["Who?", "Kaution?"]) == ""
