"""Two gateways behind a real HAProxy with one real Redis, and one is killed: the total holds and is used.

``make test-fleet`` is the long version, with four gateways and every fault.
"""

import asyncio
from pathlib import Path

from tests.gateway.ledger.fleet import MEAN, fleet, needs_haproxy, orders
from tests.gateway.ledger.servers import needs_redis, redis_server


@needs_redis
@needs_haproxy
def test_a_fleet_keeps_its_total_when_a_gateway_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        with redis_server(tmp_path / "redis", "--save", "", "--appendonly", "yes") as server:
            async with fleet(tmp_path, ["--ledger", server.url, "--ledger-loss", "0.5"], count=2) as one:
                load = one.load
                batches = [batch for batch in orders(400) if batch]
                await load.send(iter(batches[:4]))
                assert load.failed == 0
                assert load.tokens > MEAN * load.sent * 0.9  # the savings of the first batch went to the others
                under_way = asyncio.create_task(load.send(iter(batches[4:])))
                await asyncio.sleep(0.2)
                one.gateways[0].kill()
                await under_way
                assert load.failed > 0
                before = load.arrived
                await asyncio.sleep(1.5)  # until the proxy has noticed
                await load.send(iter(batches[-1:]))
                assert load.arrived == before + len(batches[-1])
                assert max(load.over, load.over_at_rest) == 0

    asyncio.run(run())
