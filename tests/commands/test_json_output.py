"""Programs that read answers find the same fields in all of them."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands.json_output import to_json_dict


def test_fields_that_are_nothing_are_there() -> None:
    """A full fleet has 0 free machines and a calm one an empty list: neither is left out."""
    report = wire.ShardReportSnapshot(shard_id="s", summary=wire.ShardSummary(total_machines=2))
    data = to_json_dict(report)
    assert data["shortfalls"] == []
    assert data["summary"]["free_machines"] == 0
    plain = [f for f in report.DESCRIPTOR.fields if f.type != FieldDescriptor.TYPE_MESSAGE]
    assert {field.name for field in plain} <= set(data)


def test_the_same_answer_is_the_same_text() -> None:
    """Two looks at a fleet that stands still can be compared line by line."""
    machines_by_shard = {f"shard-{number}": number for number in range(20)}
    quota = wire.QuotaAllocation(provider="kwok", per_shard=machines_by_shard)
    answer = wire.ListQuotasResponse(quotas=[quota])
    (shown,) = to_json_dict(answer)["quotas"]
    assert list(shown["per_shard"]) == sorted(machines_by_shard)
