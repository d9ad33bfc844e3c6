"""A thousand federated HPAs over ten members: what a pass costs when there is nothing to do."""

from __future__ import annotations

import time

from tests.fedhpa.fake_fleet import Api, add, controller
from tests.support.cpu_time import slowness

AUTOSCALED, MEMBERS = 1000, 10
LIMIT_CPU_SECONDS = 5.0


async def test_a_steady_pass_over_a_thousand_is_fast_and_sends_no_request() -> None:
    """At most five seconds of one core, and no request: changes arrive by watches."""
    api = Api([f"m{number}" for number in range(MEMBERS)])
    for number in range(AUTOSCALED):
        add(api, f"web-{number}", 20, 100)
    looker, host, registry = controller(api)
    for _ in range(2):  # the split, and what its own status makes of it
        for key in list(host.autoscalers):
            await looker.reconcile(key)
    assert all(len(link.state.hpas) == AUTOSCALED for link in registry.links.values())
    before, started = api.requests, time.process_time()
    for key in list(host.autoscalers):
        await looker.reconcile(key)
    took = time.process_time() - started
    assert api.requests == before
    assert took <= LIMIT_CPU_SECONDS * slowness(), f"{took:.1f} s"
    print(f"a steady pass over {AUTOSCALED} x {MEMBERS} took {took:.2f} s of one core")
