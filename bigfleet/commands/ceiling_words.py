"""What ceilings hold back, in plain sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bigfleet.api.v1alpha1 import shardread_pb2 as wire

_NAMED_NEEDS = 10


def ceilings(views: Sequence[wire.CeilingView], cluster: str) -> list[str]:
    """The clusters for which a ceiling holds something back, and how many others there are; of one
    `cluster` that is asked for all is said.
    """
    shown = [view for view in views if cluster or view.waiting_needs or view.capped_needs]
    lines = [line for view in shown for line in _ceiling(view)]
    if others := len(views) - len(shown):
        what = "cluster with a ceiling is" if others == 1 else "clusters with ceilings are"
        lines.append(f"{others} {'other ' if shown else ''}{what} beneath it.")
    return lines or ["No cluster that this shard serves has a ceiling."]


def _ceiling(view: wire.CeilingView) -> Iterator[str]:
    yield f"Cluster {view.cluster_id}:"
    if view.HasField("machine_ceiling"):
        yield f"  It has {view.machines} of at most {_count(view.machine_ceiling, 'machine')}."
    if view.HasField("dollars_per_hour_ceiling"):
        spent, most = view.dollars_per_hour, view.dollars_per_hour_ceiling
        yield f"  It has machines for ${spent:.2f} of at most ${most:.2f} an hour."
    if view.HasField("priority_ceiling"):
        lowered = f"{view.capped_needs} of its needs" if view.capped_needs else "none of its needs"
        yield f"  Its priorities count as {view.priority_ceiling} at most; {lowered} ask for more."
    if not view.waiting_needs:
        return
    pods = _count(view.waiting_pods, "pod")
    yield f"  {_count(view.waiting_needs, 'need')} with {pods} wait for it:"
    for each in view.waiting[:_NAMED_NEEDS]:
        key = each.need
        group = f"/{key.group}" if key.group else ""
        name = f"{key.cluster_id}/{key.profile_fingerprint}{group}"
        yield f"    {_count(each.pods, 'pod')} of need {name}, priority {key.priority}"
    if (more := view.waiting_needs - _NAMED_NEEDS) > 0:
        yield f"    and {_count(more, 'need')} more"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
