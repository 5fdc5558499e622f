"""Drift is monitored with one value per client or group and window, because requests come in runs."""

import time

import httpx
from tests.gateway.gateways import ask, calibrated, encoded, gateway, page, url_of
from tests.gateway.upstream import Upstream, until
from yarl import URL

from stakes.gateway.monitoring.shadow import drift_unit
from stakes.gateway.proxy.request import ReceivedRequest

PAGE = url_of(encoded(page(280, 280)))


def test_a_run_of_one_client_counts_as_one_value_and_each_group_as_one(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, calibrated(), shadow=0.001, shadow_window=1.0) as front:

        def alarms() -> list[str]:
            found = http.get(f"{front.address}/healthz").json()["alarms"]
            assert isinstance(found, list)
            return found

        def send(number: int, **headers: str) -> None:
            for i in range(number):  # nothing but the high tier, which is half of the calibration's mix
                named = {name.replace("_", "-"): f"{value}{i}" for name, value in headers.items()}
                http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", PAGE), headers=named)

        send(24)
        time.sleep(1.1)
        send(1, x_stakes_group="first")
        assert alarms() == []
        send(24, x_stakes_group="document-")
        assert until(lambda: len(alarms()) == 1)
        (alarm,) = alarms()
        assert alarm.startswith("mix high")
        assert alarm.endswith("if requests of different clients or groups, or 1 s apart, are independent)")
        assert all(seen.header("x-stakes-group") is None for seen in upstream.posts())
        state = http.get(f"{front.address}/stakes/state").json()["watch"]
    assert state["requests"] == 49
    assert "if requests of different clients or groups, or 1 s apart" in state["note"]


def test_the_unit_of_a_request_is_its_group_else_its_key_and_address() -> None:
    def unit(client: str, **headers: str) -> str:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return drift_unit(ReceivedRequest(URL("http://up/v1"), pairs, b"", b"", client))

    key = "Bearer sk-secret"
    assert unit("10.0.0.1", authorization=key) == unit("10.0.0.1", authorization=key, content_type="application/json")
    assert unit("10.0.0.1", x_stakes_group="a") == unit("10.0.0.2", x_stakes_group="a", authorization=key)
    different = [
        unit("10.0.0.1"), unit("10.0.0.2"), unit("10.0.0.1", authorization=key),
        unit("10.0.0.1", x_stakes_group="a"), unit("10.0.0.1", x_stakes_group="b"),
    ]  # fmt: skip
    assert len(set(different)) == 5
    assert not any("secret" in one for one in different)  # it is kept in memory
