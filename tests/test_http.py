"""The retrying client: how long it waits, and which addresses and keys it refuses."""

import pytest

from stakes.errors import BadInput
from stakes.http import Retries, retry_after, server_name


def test_pauses_double_up_to_the_longest() -> None:
    retries = Retries(pause_s=0.5, longest_pause_s=3)
    assert [retries.pause_before(attempt) for attempt in range(6)] == [0.0, 0.5, 1.0, 2.0, 3, 3]
    assert Retries().pause_before(5000) == 60.0


def test_retry_after_in_seconds_as_a_date_and_unreadable() -> None:
    assert retry_after("12", 0.0) == 12.0
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 45.0) == 15.0
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 99.0) == 0.0
    assert retry_after("soon", 0.0) is None
    assert retry_after(None, 0.0) is None


def test_a_server_is_named_without_its_password() -> None:
    assert server_name("http://user:password@127.0.0.1:8000/v1") == "http://127.0.0.1:8000"
    for address in ("ftp://x", "x y", "http://"):
        with pytest.raises(BadInput, match="give one such as http"):
            server_name(address)
    with pytest.raises(BadInput, match="no header can carry"):
        server_name("http://x", "a\nb")
