"""Small parquet files in the hub's real columns, so that no test downloads anything."""

import io
from pathlib import Path
from typing import Any

from PIL import Image

from stakes.data.hub.sources import SOURCES

HIGH, LOW = "What is the total amount?", "Who wrote the letter?"


def picture(width: int, height: int, shade: int = 200, kind: str = "PNG") -> bytes:
    """An image of one shade; different shades are different images."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), (shade % 256, shade // 256, 90)).save(file, kind)
    return file.getvalue()


def row(name: str, index: int, question: str = HIGH, image: bytes | None = None) -> dict[str, Any]:
    """One row of a benchmark with every column that the hub has, the page being that of ``index // 2``."""
    page = index // 2
    picked = {"bytes": picture(600, 800, page) if image is None else image, "path": f"{page}.png"}
    common = {"question": question, "image": picked}
    rows: dict[str, dict[str, Any]] = {
        "docvqa": {
            "questionId": str(1000 + index), "question_types": ["form"], "docId": page,
            "ucsf_document_id": f"xyz{page:04d}", "ucsf_document_page_no": "3",
            "answers": [f"${index}", f"{index} dollars"], "data_split": "val",
        },
        "infographicvqa": {
            "questionId": str(2000 + index), "answers": [f"{index}"], "answer_type": ["single span"],
            "image_url": f"https://example.org/{page}.jpeg", "operation/reasoning": [], "ocr": "[]",
            "data_split": "val",
        },
        "chartqa": {"type": "human_test", "answer": f"{index}"},
        "textvqa": {
            "image_id": f"{page:016x}", "question_id": 34602 + index, "question_tokens": ["what"],
            "image_width": 600, "image_height": 800, "flickr_original_url": "", "flickr_300k_url": "",
            "answers": ["dakota"] * 6 + ["nous"] * 4, "image_classes": ["Camera"], "set_name": "val",
            "ocr_tokens": ["DAKOTA"],
        },
        "vqav2": {
            "question_type": "what", "multiple_choice_answer": "down", "image_id": page, "answer_type": "other",
            "question_id": 262148000 + index,
            "answers": [
                {"answer": "down" if i < 7 else "table", "answer_confidence": "yes", "answer_id": i + 1}
                for i in range(10)
            ],
        },
    }  # fmt: skip
    return {**rows[name], **common}


def mixed(name: str, count: int) -> list[dict[str, Any]]:
    """Rows with questions of the low and the high tier in turn."""
    return [row(name, i, HIGH if i % 2 else LOW) for i in range(count)]


def write_copy(name: str, folder: Path, rows: list[dict[str, Any]], shards: int = 1) -> Path:
    """A copy of the benchmark as the hub's repository has it; returns the repository's folder."""
    import datasets

    source = SOURCES[name]
    inner = folder / (source.config or "data")
    inner.mkdir(parents=True)
    table = datasets.Dataset.from_list(rows).cast_column("image", datasets.Image(decode=False))
    table = table.cast_column("image", datasets.Image())
    for number in range(shards):
        part = table.shard(shards, number, contiguous=True)
        part.to_parquet(str(inner / f"{source.split}-{number:05d}-of-{shards:05d}.parquet"), batch_size=3)
    if source.config is not None:
        files = f"  - split: {source.split}\n    path: {source.config}/{source.split}-*\n"
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {source.config}\n  data_files:\n{files}---\n")
    return folder


def write_hub(folder: Path, each: int, answers: list[str], images: int = 2) -> Path:
    """Copies of all five benchmarks in folders named as their repositories; a few images serve all rows.

    DocVQA has ``each`` rows after the paper's row 1184, the others ``each`` in all. Every answer is one of ``answers``.
    """
    pages = [picture(500, 1000, 60 * i) for i in range(images)]  # 18 x 36 = 648 tokens at 1008 pixels

    def rows(name: str, count: int) -> list[dict[str, Any]]:
        made = [row(name, i, HIGH if i % 2 else LOW, pages[i // 2 % images]) for i in range(count)]
        if name == "chartqa":
            return [one | {"answer": answers[i % len(answers)]} for i, one in enumerate(made)]
        votes = [{"answer": text, "answer_confidence": "yes", "answer_id": i + 1} for i, text in enumerate(answers)]
        return [one | {"answers": votes if name == "vqav2" else answers} for one in made]

    write_copy("docvqa", folder / "DocVQA", rows("docvqa", 1184 + each))
    write_copy("infographicvqa", folder / "DocVQA", rows("infographicvqa", each))
    write_copy("chartqa", folder / "ChartQA", rows("chartqa", each))
    write_copy("textvqa", folder / "textvqa", rows("textvqa", each))
    write_copy("vqav2", folder / "lmms-lab" / "VQAv2", rows("vqav2", each))
    return folder
