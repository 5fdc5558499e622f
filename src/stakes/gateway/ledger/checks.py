"""What a Redis set-up can keep: checks for ``stakes doctor`` and for the start of a gateway.

The guarantee holds if a restart or a failover loses at most the last ``--ledger-loss`` seconds of writes
(``protocol``).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from stakes.errors import BadInput
from stakes.gateway.ledger.redis import RedisAddress

if TYPE_CHECKING:
    from redis import Redis

CLUSTER = (
    "this is a node of a Redis cluster, addressed as a single server: slots move and fail over without notice; "
    "give a server outside of a cluster, or its sentinels (redis+sentinel://…)"
)
AOF = "in redis.conf: appendonly yes, appendfsync everysec"
EVERYSEC_S = 2.0  # the most that appendfsync everysec loses, by Redis's documentation


class LedgerCheck(NamedTuple):
    """What was found about a part of the set-up, good, warning, bad or unknown, and what to do."""

    name: str
    state: str
    found: str
    advice: str = ""


def refuse_cluster(client: "Redis") -> None:
    """Refuse a cluster that is addressed as a single server; one that does not answer is tried again later."""
    from redis.exceptions import RedisError

    try:
        cluster = _info(client, "cluster").get("cluster_enabled")
    except (RedisError, OSError):
        return
    if cluster:
        raise BadInput(CLUSTER)


def check_redis(address: str, loss_s: float) -> list[LedgerCheck]:
    """Whether this Redis keeps the hard total, and under which conditions."""
    from redis.exceptions import RedisError

    where = RedisAddress.parse(address)
    client = where.client(timeout_s=3.0)
    try:
        info = _info(client, "server") | _info(client, "replication") | _info(client, "cluster")
        found = f"Redis {info.get('redis_version', 'of unknown version')} at {where.shown}"
        try:
            settings: dict[str, str] | None = client.config_get("*")
        except RedisError:  # many hosted servers forbid it
            settings = None
    except (RedisError, OSError) as error:
        advice = "start it, or correct the address; a gateway that starts now gives every image at most the mean"
        return [LedgerCheck("ledger", "bad", f"{where.shown} does not answer ({type(error).__name__})", advice)]
    finally:
        client.close()
    if info.get("cluster_enabled"):
        problem, _, advice = CLUSTER.rpartition("; ")
        return [LedgerCheck("ledger", "bad", problem, advice)]
    if info.get("role") != "master":
        return [LedgerCheck("ledger", "bad", f"{found} is a replica", "give the server that takes writes")]
    rows = [LedgerCheck("ledger", "good", found)]
    if settings is None:
        found = "the server does not show its settings; the total is kept if it persists its data and a restart or "
        rows.append(LedgerCheck("ledger settings", "unknown", f"{found}failover loses at most {loss_s:g} s of writes"))
        return rows
    rows += [_persistence(settings, loss_s), _eviction(settings)]
    if info.get("connected_slaves") or where.sentinels:
        rows.append(_failover(settings, loss_s))
    return rows


def _info(client: "Redis", section: str) -> dict[str, Any]:
    return dict(client.info(section))


def _persistence(settings: dict[str, str], loss_s: float) -> LedgerCheck:
    name = "ledger persistence"
    if settings.get("appendonly") != "yes":
        snapshots = settings.get("save")
        lost = "what was written since the last snapshot" if snapshots else "the whole total"
        return LedgerCheck(name, "bad", f"no append-only file: a restart forgets {lost}, which is granted anew", AOF)
    sync = settings.get("appendfsync", "everysec")
    if sync == "always":
        found = "append-only file, synced before every reply; without replicas --ledger-loss 0 will do"
        return LedgerCheck(name, "good", found)
    if sync == "no":
        found = "the append-only file is synced when the system gets to it, and a restart loses half a minute"
        return LedgerCheck(name, "bad", found, AOF)
    found = f"append-only file, synced every second; a restart loses up to {EVERYSEC_S:g} s"
    if loss_s < EVERYSEC_S:
        return LedgerCheck(name, "bad", f"{found}, and leases wait {loss_s:g} s", f"serve --ledger-loss {EVERYSEC_S:g}")
    return LedgerCheck(name, "good", f"{found}, for which leases wait ({loss_s:g} s)")


def _eviction(settings: dict[str, str]) -> LedgerCheck:
    policy = settings.get("maxmemory-policy", "noeviction")
    if settings.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
        advice = "in redis.conf: maxmemory-policy noeviction"
        return LedgerCheck("ledger eviction", "bad", f"{policy} may drop the ledger when memory is short", advice)
    return LedgerCheck("ledger eviction", "good", "the ledger is never evicted")


def _failover(settings: dict[str, str], loss_s: float) -> LedgerCheck:
    """A master that is cut off goes on taking writes, unless it requires replicas that have seen its last seconds."""
    name, lag = "ledger failover", settings.get("min-replicas-max-lag", "10")
    if settings.get("min-replicas-to-write", "0") == "0":
        found = "a server cut off from its replicas goes on granting, and the same is granted again after a failover"
        return LedgerCheck(name, "warning", found, "in redis.conf: min-replicas-to-write 1, min-replicas-max-lag 1")
    needed = int(lag) + 2  # lags are counted in whole seconds and reported every second
    found = f"writes stop {lag} s after the replicas were last heard of; a failover loses up to {needed} s"
    if loss_s < needed:
        return LedgerCheck(name, "warning", f"{found}, and leases wait {loss_s:g} s", f"serve --ledger-loss {needed}")
    return LedgerCheck(name, "good", f"{found}, for which leases wait ({loss_s:g} s)")
