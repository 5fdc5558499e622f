"""The layout of the paper's five benchmarks on the hub: repository, split and columns of each.

| name           | repository, config             | split      | columns used                                         |
|----------------|--------------------------------|------------|------------------------------------------------------|
| docvqa         | lmms-lab/DocVQA DocVQA         | validation | questionId question answers image ucsf_document_id   |
|                |                                |            | ucsf_document_page_no                                |
| infographicvqa | lmms-lab/DocVQA InfographicVQA | validation | questionId question answers image image_url          |
| chartqa        | lmms-lab/ChartQA               | test       | question answer image (neither id nor document)      |
| textvqa        | lmms-lab/textvqa               | validation | question_id question answers image image_id          |
| vqav2          | lmms-lab/VQAv2                 | validation | question_id question answers[].answer image image_id |

Questions and answers are read as lmms-eval's tasks read them (lmms_eval/tasks/{docvqa,infovqa,chartqa,textvqa,vqav2}),
and the columns that name a page as other public readers of these repositories do. VQAv2's ``image_id`` is that of the
official format and was not seen on the hub. A copy that lacks a column is refused with a list of its columns. ``image``
is a struct of ``bytes`` and ``path``, as the library ``datasets`` stores images.

    SOURCES["docvqa"].sample(257, row)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput


@dataclass(frozen=True)
class Source:
    """One benchmark on the hub, and the longer sides that its images are scaled to (paper, "Disjoint sampling")."""

    name: str
    repo: str
    split: str
    config: str | None = None
    id: str | None = None  # the column with the question's id; without one, the row's number is its id
    document: tuple[str, ...] = ()  # the columns that together name the page; without any, its bytes do
    answers: str = "answers"
    side: int = 1008
    most_side: int = 1008  # how far an image that is too narrow may be enlarged

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        named = (self.id,) if self.id else ()
        return (*named, *self.document, "question", self.answers, "image")

    def sample(self, index: int, row: Mapping[str, Any]) -> Sample:
        """The sample in a row, without its image; ``index`` is the row's number from the start of the split."""
        question, answers = row["question"], _answers(row[self.answers])
        if not isinstance(question, str) or not question.strip():
            raise BadInput(f"row {index} of {self.name} has no question")
        if not any(answer.strip() for answer in answers):
            raise BadInput(f"row {index} of {self.name} has no answers; is it a test split whose answers are withheld?")
        key = f"{index:05d}" if self.id is None else str(row[self.id])
        return Sample(
            id=f"{self.name}_{self.split.replace('validation', 'val')}_{key}",
            question=question,
            answers=answers,
            task=self.name,
            document="_".join(str(row[column]) for column in self.document),
        )


def _answers(value: object) -> tuple[str, ...]:
    """One string, several, or VQAv2's objects with ``answer``, of which all ten votes stay."""
    if isinstance(value, str):
        return (value,)
    given = value if isinstance(value, list) else []
    texts = [item["answer"] if isinstance(item, dict) else item for item in given]
    return tuple(text for text in texts if isinstance(text, str))


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "docvqa", "lmms-lab/DocVQA", "validation", config="DocVQA", id="questionId",
            document=("ucsf_document_id", "ucsf_document_page_no"),
        ),
        Source("chartqa", "lmms-lab/ChartQA", "test", answers="answer"),
        Source(
            "infographicvqa", "lmms-lab/DocVQA", "validation", config="InfographicVQA", id="questionId",
            document=("image_url",), most_side=1512,
        ),
        Source("textvqa", "lmms-lab/textvqa", "validation", id="question_id", document=("image_id",)),
        Source("vqav2", "lmms-lab/VQAv2", "validation", id="question_id", document=("image_id",)),
    )
}  # fmt: skip


def find_source(name: str) -> Source:
    """The benchmark of this name."""
    if name not in SOURCES:
        raise BadInput(f"no benchmark is called {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]
