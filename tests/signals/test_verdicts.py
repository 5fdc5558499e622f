"""The verdict cache survives a torn line; files that are not what they should be are refused and left alone."""

from pathlib import Path

import pytest

from stakes.errors import BadInput
from stakes.signals.verdicts import Labels, VerdictCache, verdict_key

TIERS = ("high", "low")


@pytest.mark.parametrize("torn", [b'{"key": "k2", "tie', b'{"key": "k2", "tier": "low"}', b"\xff\xfe"])
def test_a_torn_last_line_is_dropped_and_the_next_verdict_stands_on_its_own_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "cache.jsonl"
    VerdictCache(path).put("k1", "high", question="Größe?")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    cache = VerdictCache(path)
    assert (len(cache), cache.get("k1"), cache.get("k2")) == (1, "high", None)
    cache.put("k3", "low")
    assert path.read_bytes().startswith(whole + b'{"key": "k3"')
    assert VerdictCache(path).get("k3") == "low"


@pytest.mark.parametrize(
    "content", ["not a cache\nat all\n", '{"question": "Who?"}\n', "[]\n", '{"key": "k", "tier": 3}\n']
)
def test_a_file_that_is_no_cache_is_refused_by_line_and_left_as_it_was(tmp_path: Path, content: str) -> None:
    path = tmp_path / "precious.txt"
    path.write_text(content + "no newline at the end")
    with pytest.raises(BadInput, match="line 1"):
        VerdictCache(path)
    assert path.read_text() == content + "no newline at the end"


@pytest.mark.parametrize(
    "content",
    [
        b'{"my":"one line file"}',
        b"notes",
        b"\n\nnotes",
        b"\x89PNG\r\x1a",
        b"id,tier",
        b'{"key": 5}',
        b'{"key": "k"}',
        b"\xff",
    ],
)
def test_one_line_that_is_no_verdict_is_not_taken_for_a_torn_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="is not a judge's cache.*left as it was"):
        VerdictCache(path)
    assert path.read_bytes() == content


def test_a_cache_killed_within_its_first_verdict_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    VerdictCache(path).put("k1", "high", model="m", question="Größe?")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        cache = VerdictCache(path)
        assert (len(cache), path.read_bytes()) == (0, b"")


def test_a_folder_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot use"):
        VerdictCache(tmp_path)


def test_the_last_verdict_of_a_key_counts(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "cache.jsonl")
    cache.put("k", "high")
    cache.put("k", "low")
    assert VerdictCache(tmp_path / "cache.jsonl").get("k") == "low"


def test_half_a_surrogate_pair_in_a_question_can_be_kept(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "cache.jsonl")
    cache.put(verdict_key("m", "r", "\ud800"), "low", question="\ud800")
    assert len(VerdictCache(tmp_path / "cache.jsonl")) == 1


def test_keys_do_not_run_together() -> None:
    assert verdict_key("ab", "c", "d") != verdict_key("a", "bc", "d")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("oops", "line 2 is not JSON"),
        ('{"id": "b"}', "line 2 needs 'tier'"),
        ('{"id": "b", "tier": "high_cost"}', "line 2 has tier 'high_cost'"),
        ('{"tier": "low"}', "line 2 names neither"),
        ('{"id": 5, "tier": "low"}', "line 2 needs 'id'"),
        ('{"id": "a", "tier": "low"}', "line 2 gives id 'a' a second"),
    ],
)
def test_a_malformed_label_is_named_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"id": "a", "tier": "high"}}\n{line}\n')
    with pytest.raises(BadInput, match=message):
        Labels(path, TIERS)


def test_empty_and_absent_label_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text("\n")
    with pytest.raises(BadInput, match="empty"):
        Labels(tmp_path / "labels.jsonl", TIERS)
    with pytest.raises(BadInput, match="cannot read"):
        Labels(tmp_path / "absent.jsonl", TIERS)
