"""Errors and hints of the `bigfleet fleet` commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bigfleet.__main__ import main
from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands import fleet_views as views
from bigfleet.model.errors import Unavailable
from tests.services.coordinator.coordinator_answers import unavailable_leader


@pytest.mark.parametrize("address", [",", "foo", "foo:", "a:1,b"])
def test_an_invalid_address_is_named(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any call."""
    with pytest.raises(SystemExit):
        main(["fleet", "status", "--coordinator", address, "--insecure"])
    assert "is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("machines", ["2147483648", "-1", "1.5", "many"])
def test_a_number_of_machines_that_no_quota_can_have_is_named(
    machines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any call."""
    address = ["--coordinator", "127.0.0.1:9", "--insecure"]
    assert main(["fleet", "set-quota", *address, "aws", "eu", f"a={machines}"]) == 2
    assert "a whole number from 0 to 2,147,483,647" in capsys.readouterr().err


@pytest.mark.parametrize("role", ["coordinator", "shard"])
def test_who_listens_everywhere_says_where_others_reach_it(
    role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.0.0.0 cannot be dialled from elsewhere, which would show only when the leader is called."""
    flags = ["--listen", "0.0.0.0:7791", "--observe", "127.0.0.1:0", "--state", str(tmp_path)]
    own = {
        "coordinator": ["--etcd", sys.executable, "--node-id", "a"],
        "shard": ["--provider", "p:1", "--shard-id", "s", "--coordinator", "c:1"],
    }
    assert main([role, *flags, *own[role], "--insecure"]) == 2
    assert "--advertise HOST:PORT says where" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"seconds_since_report": 1.0}, "live"),
        ({"seconds_since_report": 1.0, "leaving": True}, "leaving"),
        ({"seconds_since_report": 60.0, "leaving": True}, "silent"),
        ({"seconds_since_report": 60.0}, "silent"),
    ],
)
def test_a_shard_is_silent_by_the_leaders_clock_alone(entry: dict[str, Any], state: str) -> None:
    """The client's clock may differ; and a leaving shard can die before its removal ends."""
    told = wire.ShardRegistryEntry(shard_id="s", last_heartbeat_unix_ns=1, **entry)
    assert views.state_of(told) == state


def test_a_shard_that_died_while_leaving_shows_how_to_end_it() -> None:
    """It releases nothing any more, and only a person can tell that it is dead."""
    entry = wire.ShardRegistryEntry(
        shard_id="s", last_heartbeat_unix_ns=1, seconds_since_report=60.0, leaving=True
    )
    *_, silent, hint = views.status("a:1", 2, views.Lists([entry], [], [], []))
    assert silent.endswith("shard s has not reported for 60 s")
    assert hint.endswith("if it is dead, `fleet remove-shard s` again")


def test_a_live_shard_that_a_quota_does_not_name_is_a_warning() -> None:
    """It would buy nothing, and say so only once a cluster lacks machines."""
    live, joined, dead = (
        wire.ShardRegistryEntry(shard_id=name, last_heartbeat_unix_ns=1, seconds_since_report=age)
        for name, age in (("s1", 1.0), ("s2", 1.0), ("s3", 60.0))
    )
    quota = wire.QuotaAllocation(provider="kwok", region="eu-1", per_shard={"s1": 5})
    lists = views.Lists([live, joined, dead], [], [], [], [quota])
    *_, without, hint = views.status("a:1", 2, lists)
    assert without.endswith("s2: no quota at kwok eu-1, so nothing is purchased")
    assert "`fleet set-quota`" in hint
    assert not any(
        "quota" in line for line in views.status("a:1", 2, views.Lists([live], [], [], [], [quota]))
    )


def test_a_quota_that_limits_nothing_is_a_warning_with_the_names_that_would() -> None:
    """Machines without a region label are in the region of their zone's name."""
    known = [wire.ProviderEntry(name="kwok", region=each) for each in ("eu-1b", "eu-1a")]
    assert views.quota_warning("kwok", "eu-1a", known) == ""
    assert views.quota_warning("kwok", "eu-1", []) == "", "nobody has reported yet"
    assert views.quota_warning("kwok", "eu-1", known) == (
        "\nwarning: it limits nothing as long as shards report only: kwok eu-1a, kwok eu-1b"
    )


async def test_a_leader_that_must_wait_is_not_called_absent() -> None:
    """The error has the leader's reason, instead of saying that there is no leader."""
    async with unavailable_leader("ask again in 9 s") as address, LeaderClient([address]) as asks:
        with pytest.raises(Unavailable, match=r"leads but cannot do that yet: ask again in 9 s"):
            await asks.call("RemoveShard", wire.RemoveShardRequest(shard_id="s"), 0.0)


def test_a_quota_shows_what_holds_for_now_and_why_it_changed() -> None:
    """A part is raised only when others have confirmed theirs."""
    quota = wire.QuotaAllocation(
        provider="kwok",
        region="eu-1",
        per_shard={"s1": 7, "s2": 5},
        for_now={"s1": 4},
        reasons={"s1": "cluster east lacked machines"},
    )
    _, first, second = views.quotas([quota])
    assert " ".join(first.split()) == "kwok eu-1 s1 7, 4 for now cluster east lacked machines"
    assert second.split() == ["kwok", "eu-1", "s2", "5"]
