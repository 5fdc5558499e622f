"""The gateway as a Ray Serve application: replicas on a Ray cluster, with one budget.

STAKES_POLICY=policy.json STAKES_UPSTREAM=http://vllm:8000/v1 STAKES_LEDGER=redis://redis:6379/0 \
serve run --route-prefix / ray_serve:app

Without STAKES_LEDGER each replica has a budget of its own.
"""

import os
from functools import partial
from pathlib import Path

from ray import serve
from starlette.applications import Starlette

from stakes.budgets.policy import Policy
from stakes.gateway.app import check_policy, create_app
from stakes.gateway.ledger.open import ledger_source
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings


def gateway() -> Starlette:
    """The gateway of one replica."""
    policy = Path(os.environ["STAKES_POLICY"])
    settings = Settings(upstream=os.environ["STAKES_UPSTREAM"], ledger=os.environ.get("STAKES_LEDGER"))
    ledger = ledger_source(settings.ledger, settings.shared)
    check = partial(check_policy, settings=settings)
    return create_app(settings, Served(partial(Policy.load, policy), (policy,), check, ledger, settings.burst))


@serve.deployment(num_replicas=2, max_ongoing_requests=256, ray_actor_options={"num_cpus": 1})
@serve.ingress(gateway)
class Gateway:
    """One replica."""


app = Gateway.bind()
