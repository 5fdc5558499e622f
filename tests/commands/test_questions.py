"""Notes on how questions were read and answered."""

from stakes.commands.inputs import told_pieces, told_reading
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import KeywordRule


def asked(name: str, *answers: str) -> Asked:
    return Asked(name, "What is the total?", answers, "high", name, name, (100, 100), lambda: b"")


def outcome(sample: str, prediction: str, metric: str = "relaxed", correct: bool = True) -> Outcome:
    score = float(correct)
    return Outcome(
        sample, sample, "high", "resolution", None, 304, 972, 304, prediction, False, score, correct, metric, 1.0, "r"
    )


def test_right_answers_that_are_only_a_piece_are_counted_and_shown() -> None:
    both = [asked("a", "11,932"), asked("b", "$45")]
    told = told_pieces(both, [outcome("a", "1,932"), outcome("b", "45"), outcome("a", "11,932")])
    assert told.startswith("1 of 3 right answers are only a piece of the true one, such as '1,932' for '11,932'")
    assert told_pieces(both, [outcome("b", "45"), outcome("a", "7", correct=False)]) == ""
    assert told_pieces(both, [outcome("a", "1,932", metric="anls")]) == ""


def test_keywords_that_no_question_has_are_told() -> None:
    assert "no keyword is in any of these 2 questions" in told_reading(KeywordRule(["Kaution"]), ["Who?", "total?"])
    assert told_reading(KeywordRule(["Kaution"]), ["Who?", "Kaution?"]) == ""
