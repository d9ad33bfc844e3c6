"""A provider of one's own: what is asked of it before anything starts, and how a run names it."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.api.auth.issuing import directory_of, issue
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import (
    CapacityProviderServicer,
    add_CapacityProviderServicer_to_server,
)
from bigfleet.model.machine import MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.provider.role import serving
from loaddriver.commands.flags import profile_flags, provider_flags, run_options
from loaddriver.errors import ProfileError
from loaddriver.profile.fleet import RunningProvider
from loaddriver.profile.loading import load_profile
from loaddriver.run import inputs, running_provider
from loaddriver.run.bigfleet_roles import fleet_roles, provider_roles
from loaddriver.run.context import RunOptions
from loaddriver.run.fleet_audit import audit_arguments
from loaddriver.run.inputs import RunInputs
from loaddriver.run.running_provider import (
    ListedFleet,
    list_fleet,
    read_fleet,
    remove_kubeconfigs,
    write_kubeconfigs,
)
from loaddriver.sizing.inventory import InventoryMachine, save_inventory
from loaddriver.substrates import credentials
from loaddriver.substrates.base import Cluster, Endpoint
from loaddriver.substrates.choice import SubstrateName
from tests.run.run_rig import PROFILES, machines, smoke
from tests.support.providers import settings
from tests.support.waiting import eventually

PROVIDER, SHARD = Principal("provider", "kwok"), Principal("shard", "shard-0")
KEY = "fleet.runningProvider"


def overrides(address: str = "127.0.0.1:1", identities: str = "certs") -> tuple[str, str]:
    return (f"{KEY}.address={address}", f"{KEY}.identities={identities}")


@asynccontextmanager
async def provider(
    folder: Path, *offered: InventoryMachine, plaintext: bool = False
) -> AsyncIterator[RunningProvider]:
    """BigFleet's own, with these machines, and with certificates below `folder`."""
    certs = folder / "certs"
    identity = issue(certs, [PROVIDER, SHARD], timedelta(days=1))[PROVIDER]
    save_inventory(offered, folder / "inventory.jsonl")
    given = settings(folder, identity=None if plaintext else identity)
    async with serving(given, InstantHost()) as role:
        yield RunningProvider(address=f"127.0.0.1:{role.port}", identities=str(certs))


def prepared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, listed: ListedFleet | None
) -> RunInputs:
    """What smoke is with this fleet, or with its own."""
    monkeypatch.setattr(inputs, "read_fleet", lambda _running: listed)
    given = overrides() if listed else ()
    return inputs.prepare_inputs(RunOptions("smoke", PROFILES, folder, {}, overrides=given))


async def refusal(running: RunningProvider) -> str:
    with pytest.raises(ProfileError) as refused:
        await list_fleet(running)
    return str(refused.value)


async def test_the_fleet_of_a_run_is_what_the_provider_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs are those of its machines, and its CPU is known where it is a process of this host."""
    offered = machines(smoke())
    async with provider(tmp_path, *offered) as running:
        listed = await list_fleet(running)
    used = listed.used
    assert (used.name, used.address, used.machines) == ("kwok", running.address, len(offered))
    assert used.cpu_measured
    found = prepared(tmp_path, monkeypatch, listed)
    assert {each.id for each in found.machines} == {each.id for each in offered}
    assert found.preflight().profile_errors == ()
    assert found.beside() == {"provider": os.getpid()}
    own = prepared(tmp_path, monkeypatch, None)
    assert found.preflight().lines == own.preflight().lines, "each counts for the same pod size"
    assert own.beside() == {}


async def test_a_provider_that_lists_too_little_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else some pods would wait until the end, as if BigFleet had failed."""
    small = [each for each in machines(smoke()) if each.state == "IDLE"][:1]
    async with provider(tmp_path, *small) as running:
        listed = await list_fleet(running)
    lines = prepared(tmp_path, monkeypatch, listed).preflight().profile_errors
    lacking = [line for line in lines if "machines at its peak" in line]
    assert lacking
    assert all("the fleet has " in line and " with cpu " in line for line in lacking)
    assert all(f"lists ({KEY}, --provider)" in line for line in lines)


async def test_a_provider_that_does_not_answer_is_named_with_its_flag(tmp_path: Path) -> None:
    issue(tmp_path, [PROVIDER], timedelta(days=1))
    said = await refusal(RunningProvider(address="127.0.0.1:1", identities=str(tmp_path)))
    assert f"{KEY}.address = 127.0.0.1:1 (--provider): it does not list its machines" in said


async def test_a_provider_of_another_authority_is_refused_with_the_reason(tmp_path: Path) -> None:
    others = tmp_path / "others"
    issue(others, [PROVIDER], timedelta(days=1))
    async with provider(tmp_path, *machines(smoke())) as running:
        said = await refusal(RunningProvider(address=running.address, identities=str(others)))
    assert "(--provider)" in said
    assert "authority" in said


async def test_a_provider_without_tls_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The shards of a run have certificates, so they could not reach it."""
    async with provider(tmp_path, *machines(smoke()), plaintext=True) as running:
        assert "speaks plaintext" in await refusal(running)


async def test_a_folder_without_an_authority_is_named_with_its_flag(tmp_path: Path) -> None:
    said = await refusal(RunningProvider(address="127.0.0.1:1", identities=str(tmp_path)))
    assert f"{KEY}.identities = {tmp_path} (--provider-identities)" in said
    assert "bigfleet certs" in said


def test_kubeconfigs_that_cannot_be_written_are_refused_before_the_start(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    given = RunningProvider(address="h:1", identities="certs", kubeconfigs=str(taken))
    with pytest.raises(ProfileError, match="--provider-kubeconfigs"):
        read_fleet(given)


async def test_a_provider_whose_machines_are_in_use_is_refused(tmp_path: Path) -> None:
    """They serve a cluster that another run has left, or one that people use."""
    async with provider(tmp_path, *machines(smoke())) as running:
        identity = Identity(directory_of(Path(running.identities), SHARD))
        client = GrpcProvider(running.address, identity)
        idle = next(each.id for each in machines(smoke()) if each.state == "IDLE")
        await client.configure(idle, "east", b"blob", {}, Fence("shard-0", 1, 1))

        async def configured() -> bool:
            return (await client.get(idle)).state is MachineState.CONFIGURED

        await eventually(configured)
        await client.close()
        said = await refusal(running)
    assert f"such as {idle}, which is CONFIGURED in cluster east" in said


class Listing(CapacityProviderServicer):
    """Answers `List` by what a test makes of three machines."""

    def __init__(self, answer: Callable[[wire.ListFilter], wire.MachineList]) -> None:
        self._answer = answer

    async def List(self, request: wire.ListFilter, context: Any) -> wire.MachineList:  # noqa: ARG002
        return self._answer(request)


@asynccontextmanager
async def listing(
    folder: Path, answer: Callable[[wire.ListFilter], wire.MachineList]
) -> AsyncIterator[RunningProvider]:
    """A provider that does nothing but list."""
    identity = issue(folder, [PROVIDER], timedelta(days=1))[PROVIDER]
    server = transport.server(identity)
    add_CapacityProviderServicer_to_server(Listing(answer), server)  # type: ignore[abstract]
    port = transport.listen(server, "127.0.0.1:0", identity)
    await server.start()
    try:
        yield RunningProvider(address=f"127.0.0.1:{port}", identities=str(folder))
    finally:
        await server.stop(None)


OFFERED = [
    wire.Machine(id=f"m-{n}", state=wire.SPECULATIVE, capacity_type=wire.SPOT) for n in range(3)
]


def in_pages(ask: wire.ListFilter) -> wire.MachineList:
    """As many as are asked for, from the token's number on."""
    begin = int(ask.page_token or b"0")
    end = begin + (ask.max_results or len(OFFERED))
    more = str(end).encode() if end < len(OFFERED) else b""
    return wire.MachineList(machines=OFFERED[begin:end], next_page_token=more)


def cut(ask: wire.ListFilter) -> wire.MachineList:
    """Never a next page."""
    return wire.MachineList(machines=OFFERED[: ask.max_results or None])


@pytest.mark.parametrize("answer", [in_pages, cut], ids=["in pages", "without pages"])
async def test_all_machines_are_listed_however_they_are_divided(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[wire.ListFilter], wire.MachineList],
) -> None:
    monkeypatch.setattr(running_provider, "_PAGE_MACHINES", 2)
    async with listing(tmp_path, answer) as running:
        listed = await list_fleet(running)
    assert sorted(each.id for each in listed.machines) == ["m-0", "m-1", "m-2"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda _: wire.MachineList(machines=[wire.Machine(id="m-9")]),
            "machine m-9",
        ),
        (
            lambda _: wire.MachineList(next_page_token=b"same"),
            "leads to the page that it is on",
        ),
    ],
    ids=["an invalid machine", "a page that leads to itself"],
)
async def test_a_listing_that_no_shard_could_read_is_refused(
    tmp_path: Path, answer: Callable[[wire.ListFilter], wire.MachineList], said: str
) -> None:
    async with listing(tmp_path, answer) as running:
        found = await refusal(running)
    assert "(--provider): what it lists is not valid" in found
    assert said in found


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ((overrides()[0],), f"{KEY}.identities is missing.*--provider-identities"),
        ((overrides()[1],), f"{KEY}.address = '': write HOST:PORT"),
        (overrides("nowhere"), f"{KEY}.address = 'nowhere'"),
        (
            (*overrides(), "fleet.providers=[{name: hall, capacityTypes: [bareMetal]}]"),
            f"{KEY} has all machines",
        ),
        ((*overrides(), "system=none"), f"{KEY} is BigFleet's"),
        (
            (
                *overrides(),
                "fleet.prices={everySeconds: 1, number: 1, lowestFactor: 1, highestFactor: 2}",
            ),
            "fleet.prices is played by",
        ),
        ((*overrides(), "anchors=both"), "anchors = both"),
    ],
)
def test_contradictions_are_refused_with_the_key(changes: tuple[str, ...], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        load_profile("smoke", PROFILES, changes)


@pytest.mark.parametrize("substrate", [SubstrateName.KIND, SubstrateName.PODS])
def test_it_needs_the_local_substrate(tmp_path: Path, substrate: SubstrateName) -> None:
    """Elsewhere nobody could give it access to the clusters."""
    options = RunOptions("smoke", PROFILES, tmp_path, {}, substrate, overrides=overrides())
    with pytest.raises(ProfileError, match=r"\(--provider\) needs --substrate local"):
        inputs.prepare_inputs(options)


def test_the_flags_are_keys_of_the_profile() -> None:
    """So the results say which provider it was, and an address is never read as a number."""
    parser = argparse.ArgumentParser()
    profile_flags(parser)
    provider_flags(parser)
    given = ["smoke", "--provider", "10:20", "--provider-identities", "certs"]
    options = run_options(parser.parse_args([*given, "--provider-kubeconfigs", "clusters"]))
    fleet = load_profile("smoke", PROFILES, options.overrides).settings.fleet
    wanted = RunningProvider(address="10:20", identities="certs", kubeconfigs="clusters")
    assert fleet.running_provider == wanted


def test_shards_and_audit_are_given_its_address_and_no_other_provider_starts() -> None:
    given = smoke(*overrides("10.0.0.1:20")).settings
    assert provider_roles(given, Path("scratch")) == []
    roles = fleet_roles(given, [Cluster("c1", "https://127.0.0.1:1", {}, None)], Path())
    assert not any(name.startswith("provider") for name in roles)
    arguments = list(roles["shard-0"].arguments)
    assert arguments[arguments.index("--provider") + 1] == "10.0.0.1:20"
    shard = Endpoint("shard-0", None, Path("log"), {"listen": "127.0.0.1:2"}, Path("readonly"))
    assert "--provider 10.0.0.1:20" in " ".join(audit_arguments(given, [shard], []))


def test_runs_of_one_profile_are_comparable_whoever_provides() -> None:
    assert smoke(*overrides()).settings.without_system() == smoke().settings.without_system()


def test_the_access_to_a_cluster_is_whole_in_itself_and_ends_with_the_run(tmp_path: Path) -> None:
    """The provider may run where the files that it refers to cannot be seen."""
    made = credentials.issue(tmp_path / "c1", "c1", "https://127.0.0.1:1")
    cluster = Cluster("c1", "https://127.0.0.1:1", made.kubeconfigs, None)
    folder = tmp_path / "given" / "clusters"
    write_kubeconfigs(folder, [cluster])
    [written] = folder.iterdir()
    assert written.name == "c1.kubeconfig"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    content = yaml.safe_load(written.read_text())
    assert "certificate-authority" not in content["clusters"][0]["cluster"]
    assert content["users"][0]["user"]["token"] == made.tokens["fake-host"]
    remove_kubeconfigs(folder, [cluster])
    assert not list(folder.iterdir())
