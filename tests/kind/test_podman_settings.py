from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from kind.containers_conf import HostFacts, containers_conf

PLAIN = HostFacts(
    root=True, unified_cgroups=True, may_raise_limits=True, open_files=1024, processes=4096
)


UNLIMITED = {"pids_limit": 0}


def test_a_node_may_have_more_threads_than_other_containers() -> None:
    """containerd dies when it cannot have another one."""
    assert tomllib.loads(containers_conf(PLAIN) or "") == {"containers": UNLIMITED}


def test_a_rootless_podman_is_left_alone() -> None:
    facts = replace(PLAIN, root=False, unified_cgroups=False, may_raise_limits=False)
    assert containers_conf(facts) is None


def test_old_cgroups_need_runc_and_plain_cgroup_files() -> None:
    settings = tomllib.loads(containers_conf(replace(PLAIN, unified_cgroups=False)) or "")
    engine = {"runtime": "runc", "cgroup_manager": "cgroupfs"}
    assert settings == {"containers": UNLIMITED, "engine": engine}


def test_a_host_that_may_not_raise_limits_asks_for_none_above_its_own() -> None:
    settings = tomllib.loads(containers_conf(replace(PLAIN, may_raise_limits=False)) or "")
    limits = {"default_ulimits": ["nofile=1024:1024", "nproc=4096:4096"]}
    assert settings == {"containers": {**UNLIMITED, **limits}}


def test_facts_come_from_the_host(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tpython\nCapBnd:\t000001fffeffffff\n")
    (tmp_path / "proc/sys/kernel/pid_max").write_text("300\n")
    facts = HostFacts.read(tmp_path)
    assert not facts.may_raise_limits
    assert not facts.unified_cgroups
    assert facts.processes <= 300


def test_the_capability_and_the_unified_hierarchy_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("CapBnd:\t000001ffffffffff\n")
    (tmp_path / "proc/sys/kernel/pid_max").write_text("300\n")
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu\n")
    facts = HostFacts.read(tmp_path)
    assert facts.may_raise_limits
    assert facts.unified_cgroups
