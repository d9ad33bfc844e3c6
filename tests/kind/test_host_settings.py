from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kind.host_settings import (
    FORWARDING,
    SETTINGS,
    exclusive_host_lock,
    restore_host_settings,
    save_host_settings,
    shared_host_lock,
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host's /proc/sys with every setting at 0, in its first boot."""
    root = tmp_path / "host"
    for name in (*SETTINGS, "kernel/random/boot_id"):
        setting = root / "proc/sys" / name
        setting.parent.mkdir(parents=True, exist_ok=True)
        setting.write_text("0\n")
    return root


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "host-settings.json"


def change(host: Path, name: str, value: str) -> None:
    (host / "proc/sys" / name).write_text(f"{value}\n")


def value(host: Path, name: str) -> str:
    return (host / "proc/sys" / name).read_text().strip()


def test_what_changed_is_put_back_and_named(host: Path, state: Path) -> None:
    save_host_settings(state, host)
    change(host, "kernel/panic", "10")
    change(host, "vm/overcommit_memory", "1")
    assert restore_host_settings(state, host) == ("kernel.panic", "vm.overcommit_memory")
    assert value(host, "kernel/panic") == "0"
    assert value(host, "vm/overcommit_memory") == "0"
    assert not state.exists()


def test_a_second_cluster_does_not_take_changed_settings_for_the_hosts_own(
    host: Path, state: Path
) -> None:
    save_host_settings(state, host)
    change(host, "kernel/panic", "10")
    save_host_settings(state, host)
    restore_host_settings(state, host)
    assert value(host, "kernel/panic") == "0"


def test_clusters_that_start_together_leave_no_folder_behind(host: Path, state: Path) -> None:
    """Whoever comes second must not believe that the folder was always there."""
    together = threading.Barrier(4)

    def save() -> None:
        together.wait()
        save_host_settings(state, host)

    for _ in range(20):
        with ThreadPoolExecutor() as pool:
            for start in [pool.submit(save) for _ in range(4)]:
                start.result()
        assert (host / "lib/modules").is_dir()
        restore_host_settings(state, host)
        assert not (host / "lib/modules").exists()


def test_what_an_earlier_boot_left_behind_is_not_written(host: Path, state: Path) -> None:
    save_host_settings(state, host)
    change(host, "kernel/random/boot_id", "another")
    change(host, "kernel/panic", "10")
    assert restore_host_settings(state, host) == ()
    assert value(host, "kernel/panic") == "10"
    assert not state.exists()


def test_a_new_boot_is_kept_anew(host: Path, state: Path) -> None:
    save_host_settings(state, host)
    change(host, "kernel/random/boot_id", "another")
    change(host, "kernel/panic", "5")
    save_host_settings(state, host)
    change(host, "kernel/panic", "10")
    restore_host_settings(state, host)
    assert value(host, "kernel/panic") == "5"


def test_restoring_without_having_saved_does_nothing(host: Path, state: Path) -> None:
    assert restore_host_settings(state, host) == ()


def test_what_other_containers_need_stays_until_a_later_call(host: Path, state: Path) -> None:
    save_host_settings(state, host)
    change(host, "net/ipv4/ip_forward", "1")
    assert restore_host_settings(state, host, leave=FORWARDING) == ()
    assert value(host, "net/ipv4/ip_forward") == "1"
    assert restore_host_settings(state, host) == ("net.ipv4.ip_forward",)


def test_a_setting_that_this_kernel_lacks_is_no_concern(host: Path, state: Path) -> None:
    (host / "proc/sys/net/ipv6/conf/all/forwarding").unlink()
    save_host_settings(state, host)
    assert restore_host_settings(state, host) == ()


def test_the_modules_folder_is_made_for_kind_and_removed_again(host: Path, state: Path) -> None:
    save_host_settings(state, host)
    assert (host / "lib/modules").is_dir()
    restore_host_settings(state, host)
    assert not (host / "lib/modules").exists()


def test_a_modules_folder_of_the_hosts_own_stays(host: Path, state: Path) -> None:
    (host / "lib/modules").mkdir(parents=True)
    save_host_settings(state, host)
    restore_host_settings(state, host)
    assert (host / "lib/modules").is_dir()


def test_several_may_start_side_by_side_and_none_of_them_is_alone(host: Path, state: Path) -> None:
    starting = shared_host_lock(state, host), shared_host_lock(state, host)
    with starting[0], starting[1], exclusive_host_lock(state) as alone:
        assert not alone
    with exclusive_host_lock(state) as alone:
        assert alone


def test_what_starts_has_the_hosts_settings_kept(host: Path, state: Path) -> None:
    with shared_host_lock(state, host):
        change(host, "kernel/panic", "10")
    assert restore_host_settings(state, host) == ("kernel.panic",)
