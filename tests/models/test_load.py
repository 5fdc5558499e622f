"""A checkpoint on disk loads and answers, or fails with one sentence."""

from __future__ import annotations

import json
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from tests.models.tiny import DELETABLE, image_processor, picture, tiny, tokenizer

from stakes import models
from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.loading import ask_hub, check_copied


def save(family: str, folder: Path) -> Path:
    model = tiny(family)
    model.model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    image_processor(family).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(model.processor.template, encoding="utf-8")
    return folder


@pytest.mark.parametrize("family", DELETABLE)
def test_a_folder_loads_and_answers_as_the_model_it_was_saved_from(family: str, tmp_path: Path) -> None:
    loaded = models.load(str(save(family, tmp_path)), device="cpu", max_new_tokens=8)
    request = Request(picture(150, 120), "What is it?", 7, "deletion")
    (ours,), (theirs,) = loaded.answer([request]), tiny(family).answer([request])
    assert ours.text == theirs.text
    assert loaded.family == tiny(family).family
    assert next(loaded.model.parameters()).dtype == torch.float32


def test_the_processors_chat_template_is_preferred_to_the_tokenizers(tmp_path: Path) -> None:
    folder = save("llava_onevision", tmp_path)
    (folder / "chat_template.jinja").unlink()
    path = folder / "tokenizer_config.json"
    stated = json.loads(path.read_text()) | {"chat_template": "text only"}
    path.write_text(json.dumps(stated))
    template = tiny("llava_onevision").processor.template
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert models.load(str(folder), device="cpu", dtype="bfloat16").processor.template == template


def test_bfloat16_answers_and_spends_the_same_tokens(tmp_path: Path) -> None:
    loaded = models.load(str(save("qwen3_vl", tmp_path)), device="cpu", dtype="bfloat16")
    requests = [Request(picture(150, 120), "What?", 5, "deletion", s) for s in ("redundancy", "fastv", "visionzip")]
    assert [answer.realised_tokens for answer in loaded.answer(requests)] == [5, 5, 5]
    assert next(loaded.model.parameters()).dtype == torch.bfloat16
    assert loaded.max_new_tokens == 16


def test_no_weights_and_no_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match="no model at 'nobody/nothing-here': .*give a folder that has the weights"):
        models.load("nobody/nothing-here")


def test_a_reader_that_does_not_ship_is_not_looked_up_on_the_hub() -> None:
    with pytest.raises(BadInput, match="no reader called 'embedded-huge' ships with stakes; there is embedded"):
        models.load("embedded-huge")


@pytest.mark.parametrize(("name", "suggestion"), [("embeded", "embedded"), ("llava", "embedded-llava"), ("orc", "ocr")])
def test_a_misspelled_name_is_refused_before_the_hub_is_asked(
    name: str, suggestion: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda _: pytest.fail("the hub was asked"))
    with pytest.raises(BadInput, match=f"no model is called '{name}'; did you mean '{suggestion}'?"):
        models.load(name)
    Path(name).mkdir()  # a folder of that name is used as a folder
    with pytest.raises(BadInput, match=f"the folder {name} holds no model"):
        models.load(name)


def set_hub(at: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """The hub is at this address, and nothing was ever fetched from it."""
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", at + "/{repo_id}/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", at)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))


def test_an_unreachable_hub_fails_at_once_without_its_own_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("huggingface_hub")
    before = log.level
    set_hub("http://127.0.0.1:1", monkeypatch, tmp_path)
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)  # including the hub's own 23 seconds
    log.addHandler(handler)
    try:
        with pytest.raises(BadInput, match="no model at 'nobody/nothing-here': could not connect to .*no copy here"):
            models.load("nobody/nothing-here")
    finally:
        log.removeHandler(handler)
    assert (logged, log.level) == ([], before)
    assert sum(paused) < 2
    assert capsys.readouterr().err == "looking for nobody/nothing-here on the hub (http://127.0.0.1:1)\n"


def test_a_slow_hub_is_asked_again_with_its_own_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths: list[str] = []

    class Slow(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            paths.append(self.path)
            if len(paths) == 1:
                time.sleep(1.0)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr("stakes.models.loading.TIMEOUT_S", 0.3)
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            set_hub(f"http://127.0.0.1:{server.server_port}", monkeypatch, tmp_path)
            with pytest.raises(
                BadInput, match="no model at 'nobody/slow': nobody/slow is not a local folder and is not"
            ):
                models.load("nobody/slow")
        finally:
            server.shutdown()
    assert len(paths) > 1, "transformers must ask, too"


def test_a_cached_model_needs_no_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_hub("http://127.0.0.1:1", monkeypatch, tmp_path)
    folder = tmp_path / "models--nobody--tiny"
    save("qwen2_vl", folder / "snapshots" / "abc")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    capsys.readouterr()
    ask_hub("nobody/tiny")
    ask_hub("a name that the hub cannot have")
    assert capsys.readouterr().err == ""


def test_a_folder_without_weights_is_one_sentence(tmp_path: Path) -> None:
    folder = save("qwen2_vl", tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadInput, match="cannot be loaded"):
        models.load(str(folder))
    with pytest.raises(BadInput, match="there is no folder .*nowhere; check the path"):
        models.load(str(tmp_path / "nowhere"))


def test_a_type_that_reads_no_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(BadInput, match="is a bert, which transformers does not load as an image-text-to-text model"):
        models.load(str(tmp_path))


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'float13' is not a torch dtype"):
        models.load(str(tmp_path), dtype="float13")
    with pytest.raises(BadInput, match="at least one token long"):
        models.load(str(tmp_path), max_new_tokens=0)
    with pytest.raises(BadInput, match="concurrency is for an http"):
        models.load(str(tmp_path), concurrency=2)
    with pytest.raises(BadInput, match="is an address, and its server chose"):
        models.load("http://127.0.0.1:8000", device="cpu")


@pytest.mark.parametrize(
    ("name", "message"), [("http://127.0.0.1:8000/v1", "is an address"), ("ocr", "leave out --ray")]
)
def test_models_that_workers_cannot_load_are_refused(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_copied(name)
