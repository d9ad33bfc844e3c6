"""Joining a member reports at once what will not work with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bigfleet.commands import fedhpa_join, fedhpa_status
from bigfleet.model.errors import BigFleetError, InvalidInput
from loaddriver.substrates.base import Cluster
from tests.support.fedhpa_fleet import Fleet

pytestmark = pytest.mark.cluster


async def test_joining_without_permissions_reports_what_to_apply(
    federated: Fleet, federated_clusters: dict[str, Cluster]
) -> None:
    """Not minutes later, by a status Unreachable."""
    admin = federated_clusters["host"].kubeconfigs["admin"]
    recorder = federated_clusters["west"].kubeconfigs["recorder"]
    await federated.leave("west")
    said, doubt = (await fedhpa_join.join(admin, "west", recorder, [])).splitlines()
    assert said.startswith("west is a member")
    assert doubt.startswith("warning: its user may not scale there")
    assert "rbac/member.yaml" in doubt


async def test_installing_without_permissions_names_the_server_and_what_it_denied(
    federated_clusters: dict[str, Cluster],
) -> None:
    recorder = federated_clusters["host"].kubeconfigs["recorder"]
    with pytest.raises(BigFleetError, match=r"https://127\.0\.0\.1:.*403 Forbidden"):
        await fedhpa_status.make_host(recorder)


async def test_a_member_that_does_not_answer_is_a_member_all_the_same(
    federated: Fleet, federated_clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    """It may be down just now, or reached from the federation only."""
    admin = federated_clusters["host"].kubeconfigs["admin"]
    content = yaml.safe_load(federated_clusters["west"].kubeconfigs["admin"].read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    away = tmp_path / "away"
    away.write_text(yaml.safe_dump(content))
    await federated.leave("west")
    said, doubt = (await fedhpa_join.join(admin, "west", away, [])).splitlines()
    assert said.startswith("west is a member")
    assert doubt.startswith("warning: https://127.0.0.1:9 does not accept the kubeconfig from here")


async def test_a_file_that_is_no_kubeconfig_joins_nothing(
    federated_clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    admin = federated_clusters["host"].kubeconfigs["admin"]
    (tmp_path / "odd").write_text("- 1")
    with pytest.raises(InvalidInput, match=r"odd.* is not a kubeconfig"):
        await fedhpa_join.join(admin, "west", tmp_path / "odd", [])
