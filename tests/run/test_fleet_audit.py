"""The audit at the end of a run: how it is called, and what its result does to the verdict."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from loaddriver.judge.applicability import applicable
from loaddriver.judge.schema import Summary
from loaddriver.profile.loading import load_profile
from loaddriver.record.fleet_audit import FleetAudit, FleetDifference, read_audit
from loaddriver.report.page import render_page
from loaddriver.run.context import RunOptions
from loaddriver.run.fleet_audit import AUDIT, FleetAuditor, audit_arguments
from loaddriver.run.system import SystemUnderTest
from loaddriver.substrates.base import Cluster, Endpoint
from tests.judge.judge_rig import facts, gate, row, summarised, unseen
from tests.run.run_rig import PROFILES, smoke

SETTINGS = smoke().settings
AGREES = gate("audit.differences", 0, "==")
LOST = FleetDifference(
    kind="node-without-machine",
    object="Node m-9 of cluster c1",
    says={"provider": "does not list it"},
    remedy="delete the Node",
)


def endpoint(name: str, port: int) -> Endpoint:
    address = f"127.0.0.1:{port}"
    return Endpoint(name, None, Path("log"), {"listen": address}, Path("/identities/readonly"))


PROVIDER, SHARD = endpoint("provider", 1), endpoint("shard-0", 2)
CLUSTER = Cluster("c1", "https://127.0.0.1:6443", {"admin": Path("/c1/admin.kubeconfig")}, None)


def test_a_lone_shard_is_audited_with_its_provider_and_every_cluster() -> None:
    """The pause is as long as what is on its way takes to arrive."""
    said = " ".join(audit_arguments(SETTINGS, [PROVIDER, SHARD], [CLUSTER]))
    assert said == (
        "audit --shard 127.0.0.1:2 --provider 127.0.0.1:1 --cluster c1=/c1/admin.kubeconfig "
        "--identity /identities/readonly --pause 12 --output json"
    )


def test_shards_of_a_coordinator_are_reached_where_the_harness_sees_them() -> None:
    """In pods they report addresses that lead nowhere from here."""
    roles = [PROVIDER, endpoint("coordinator-0", 3), SHARD, endpoint("shard-1", 4)]
    said = " ".join(audit_arguments(SETTINGS, roles, []))
    assert "--coordinator 127.0.0.1:3 " in said
    assert "--shard-address shard-0=127.0.0.1:2 --shard-address shard-1=127.0.0.1:4" in said
    assert "--shard " not in said


def test_a_cluster_that_has_only_machines_of_its_own_is_not_audited() -> None:
    """It has no operator, so that no shard knows it."""
    settings = load_profile("fedhpa-3", PROFILES).settings
    assert settings.federation is not None
    own = replace(CLUSTER, name=settings.federation.on_premise.cluster)
    served = replace(CLUSTER, name="served")
    said = " ".join(audit_arguments(settings, [PROVIDER, SHARD], [own, served]))
    assert "--cluster served=" in said
    assert f"--cluster {own.name}=" not in said


def options(tmp_path: Path, script: str) -> RunOptions:
    """Of a run whose system under test is a script."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\n{script}\n")
    python.chmod(0o700)
    (tmp_path / "logs").mkdir()
    given = RunOptions("smoke", PROFILES, tmp_path, {"PATH": "/bin:/usr/bin"})
    return replace(given, system=SystemUnderTest(tmp_path))


async def audited(tmp_path: Path, script: str) -> FleetAudit | None:
    auditor = FleetAuditor(options(tmp_path, script), "run-1", tmp_path)
    return await auditor.run(SETTINGS, {"shard-0": SHARD}, [])


async def test_differences_are_read_although_the_command_fails_for_them(tmp_path: Path) -> None:
    output = json.dumps({"differences": [msgspec.to_builtins(LOST)], "in_transit": []})
    found = await audited(tmp_path, f"print({output!r}); raise SystemExit(1)")
    assert found == FleetAudit(differences=[LOST])
    assert json.loads((tmp_path / AUDIT).read_text())["differences"]


async def test_an_audit_that_breaks_says_why_and_has_no_number(tmp_path: Path) -> None:
    """As of a release that has no such command."""
    found = await audited(tmp_path, "raise SystemExit(2)")
    assert found is not None
    assert found.differences is None
    assert "ended with exit code 2; its log: " in found.error


async def test_a_run_without_shards_has_no_audit(tmp_path: Path) -> None:
    auditor = FleetAuditor(options(tmp_path, ""), "run-1", tmp_path)
    assert await auditor.run(SETTINGS, {"provider": PROVIDER}, []) is None


def test_output_that_is_no_result_is_an_error() -> None:
    assert read_audit(b"Traceback").error
    assert read_audit(b'{"differences": []}') == FleetAudit(differences=[])


def summary(audit: FleetAudit | None) -> Summary:
    return summarised(facts(fleet_audit=audit), [unseen()], [row("a", 1, 3)], [AGREES])


@pytest.mark.parametrize(
    ("audit", "verdict"),
    [
        (FleetAudit(differences=[]), "pass"),
        (FleetAudit(differences=[LOST]), "fail"),
        (FleetAudit(error="it ended with exit code 2"), "fail"),
        (None, "fail"),
    ],
)
def test_only_an_audit_that_found_nothing_meets_the_gate(
    audit: FleetAudit | None, verdict: str
) -> None:
    """An audit that did not run proves nothing."""
    assert summary(audit).verdict == verdict


def test_each_difference_is_in_summary_and_report() -> None:
    found = summary(FleetAudit(differences=[LOST]))
    assert (found.audit.differences, found.audit.found) == (1, [LOST])
    page = render_page(found, [])
    assert LOST.sentence in page
    assert LOST.remedy in page
    assert "It is not known: no shard." in render_page(summary(FleetAudit(error="no shard")), [])


@pytest.mark.parametrize("system", ["", "karpenter"])
def test_runs_without_bigfleet_are_not_held_to_it(system: str) -> None:
    assert applicable([AGREES], system) == []
