"""`bigfleet fedhpa status` and `install`."""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.install_fedhpa import install_fedhpa
from bigfleet.commands.tables import ago, aligned
from bigfleet.fedhpa.autoscaler.hpa_report import moment
from bigfleet.fedhpa.objects import AUTOSCALERS, Autoscaler, ClusterStatus, Condition
from bigfleet.kube.access import connect
from bigfleet.kube.client import (
    CONNECTION_ERRORS,
    NOT_FOUND,
    ApiError,
    KubeClient,
)
from bigfleet.model.errors import BigFleetError, Unavailable, UnknownObject

_COLUMNS = ("CLUSTER", "STATE", "MIN", "MAX", "CURRENT", "DESIRED", "PLACED", "MOVED")
_WIDTH = 80


class _Autoscalers(msgspec.Struct):
    items: list[Autoscaler]


async def status(kubeconfig: Path | None, name: str, as_json: bool) -> str:
    """The federated HPAs called NAMESPACE[/NAME], all for "", as text or as their JSON.

    UnknownObject if there is none, Unavailable if the API server does not answer.
    """
    namespace, _, short = name.partition("/")
    where = f"/namespaces/{namespace}" if namespace else ""
    query = {"fieldSelector": f"metadata.name={short}"} if short else {}
    async with await connect(kubeconfig) as client:
        content = await _ask(client, f"{GROUP_VERSION}{where}/{AUTOSCALERS}", query)
    found = msgspec.json.decode(content, type=_Autoscalers).items
    if not found:
        which = f" {name}" if short else f" in namespace {namespace}" if namespace else ""
        raise UnknownObject(f"{client.server} has no federated HPA{which}")
    if as_json:
        return json.dumps(json.loads(content)["items"], indent=2)
    return "\n\n".join("\n".join(lines(each, time.time())) for each in found)


async def _ask(client: KubeClient, path: str, query: dict[str, str]) -> bytes:
    try:
        return await client.get(path, query)
    except ApiError as error:
        if error.status == NOT_FOUND:
            hint = "run `bigfleet fedhpa install` with its administrator's kubeconfig"
            raise UnknownObject(f"{client.server} has no CRDs of federated HPAs; {hint}") from None
        raise BigFleetError(f"{client.server}: {error}") from None
    except CONNECTION_ERRORS as error:
        raise Unavailable(f"{client.server}: {str(error) or repr(error)}") from None


def lines(autoscaler: Autoscaler, now: float) -> Iterator[str]:
    """One federated HPA on 80 columns; `now` as in `time.time`."""
    metadata, spec, found = autoscaler.metadata, autoscaler.spec, autoscaler.status
    ref = spec.scale_target_ref
    yield from _wrapped(
        f"{metadata.namespace}/{metadata.name} scales {ref.kind} {ref.name} "
        f"between {spec.min_replicas} and {spec.max_replicas}: "
        f"{found.current_replicas or 0} current, {found.desired_replicas or 0} desired",
        "",
    )
    for line in aligned(_COLUMNS, [_row(each, now) for each in found.clusters]):
        yield f"  {line}"
    if metadata.deletion_timestamp:
        yield "  It is being deleted: its HPAs are removed from all clusters first."
    for sentence in _problems(found.conditions):
        yield from _wrapped(sentence, "  ")
    for each in found.clusters:
        if move := each.last_move:
            yield from _wrapped(f"{each.name}: {move['change']}: {move['reason']}", "  ")


def _problems(conditions: Sequence[Condition]) -> Iterator[str]:
    seen: set[str] = set()
    for each in conditions:
        if each.status != "True" and each.message not in seen:
            seen.add(each.message)
            yield f"{each.type} is {each.status}: {each.message}"


def _wrapped(sentence: str, indent: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(line: ClusterStatus, now: float) -> tuple[str, ...]:
    moved = moment((line.last_move or {}).get("time", ""))
    numbers = (
        line.min_replicas,
        line.max_replicas,
        line.current_replicas,
        line.desired_replicas,
        line.scheduled_replicas,
    )
    shown = ("-" if number is None else str(number) for number in numbers)
    since = f"{ago(max(0.0, now - moved))} ago" if math.isfinite(moved) else "-"
    return (line.name, line.state, *shown, since)


async def make_host(kubeconfig: Path | None) -> str:
    """Install the federated CRDs and the federation's RBAC into an API server."""
    async with await connect(kubeconfig) as client:
        try:
            await install_fedhpa(client)
        except ApiError as error:
            raise BigFleetError(f"{client.server}: {error}") from None
        return f"installed into {client.server}; now join members"
