"""Whether the user of a context may do all that a run does, asked before anything is created.

`python -m loaddriver.substrates.existing.rights` prints these rights for charts/scaletest.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import yaml

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.existing.objects import (
    OF_FLEET_NODES,
    OF_KWOK,
    OF_THE_HARNESS,
    OF_THE_LOAD,
    Guest,
    Rule,
    role_rules,
)

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 16
_HEADING = """\
# What the runner needs in the cluster that it measures, as printed by
# `python -m loaddriver.substrates.existing.rights`.
"""


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


def needed_rules(*, fleet_nodes: bool, guest: Guest | None = None) -> Sequence[Rule]:
    """What the user needs; with `fleet_nodes` the run has Nodes of its own."""
    more = OF_FLEET_NODES if fleet_nodes else ()
    # What the load and the guest may do is needed, too: nobody may grant more than he has.
    brought = (*guest.of_the_user, *guest.rules) if guest else ()
    return (*OF_THE_HARNESS, *OF_THE_LOAD, *OF_KWOK, *more, *brought)


async def missing_rights(client: KubeClient, rules: Iterable[Rule]) -> list[str]:
    """Each right that the user lacks, such as `create pods` or `patch deployments.apps/scale`."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def lacks(verb: str, group: str, resource: str) -> str:
        kind, _, part = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": kind, "subresource": part}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        async with at_once:
            answer = await client.create(_REVIEWS, {**body, "spec": {"resourceAttributes": wanted}})
        if msgspec.json.decode(answer, type=_Review).status.allowed:
            return ""
        named = f"{kind}.{group}" if group else kind
        return f"{verb} {named}{'/' if part else ''}{part}"

    found = await asyncio.gather(*(lacks(*each) for each in dict.fromkeys(_single(rules))))
    return [right for right in found if right]


def _single(rules: Iterable[Rule]) -> Iterator[tuple[str, str, str]]:
    for group, resources, verbs in rules:
        for resource in resources:
            yield from ((verb, group, resource) for verb in verbs)


def text() -> str:
    """The file of the chart; `fleetNodes` has what a run with Nodes of its own needs besides."""
    content = {
        "always": role_rules(needed_rules(fleet_nodes=False)),
        "fleetNodes": role_rules(OF_FLEET_NODES),
    }
    return _HEADING + yaml.safe_dump(content, sort_keys=False)


if __name__ == "__main__":
    sys.stdout.write(text())
