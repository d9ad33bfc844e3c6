"""A context is found as kubectl finds it, and becomes a file that works anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.errors import ProfileError
from loaddriver.substrates.existing.contexts import read_contexts
from loaddriver.substrates.existing.starter import started_by_job, starter

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What Kubernetes mounts of a ServiceAccount."""
    folder = tmp_path / "account"
    folder.mkdir()
    for name, text in (("token", "first"), ("ca.crt", "PEM"), ("namespace", "scaletest")):
        (folder / name).write_text(text)
    return folder


def kubeconfig(path: Path, name: str, user: dict[str, Any], current: str = "") -> Path:
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": current,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_first_of_several_files_wins_and_the_current_context_is_the_default(
    tmp_path: Path,
) -> None:
    one = kubeconfig(tmp_path / "one", "east", {"token": "first"}, current="east")
    other = kubeconfig(tmp_path / "other", "east", {"token": "second"}, current="none")
    more = kubeconfig(tmp_path / "more", "west", {"token": "third"})
    environment = {"KUBECONFIG": f"{one}:{other}:{more}"}
    [found] = read_contexts(environment, [])
    assert (found.name, found.user["token"]) == ("east", "first")
    both = read_contexts(environment, ["west", "east"])
    assert [each.cluster["server"] for each in both] == ["https://west", "https://east"]


def test_relative_paths_of_credentials_are_those_of_their_file(tmp_path: Path) -> None:
    """Also the command of a credential plugin, unless it is looked up in PATH."""
    user = {"client-key": "me.key", "exec": {"command": "./bin/login", "args": []}}
    path = kubeconfig(tmp_path / "sub" / "config", "east", user, current="east")
    [found] = read_contexts({"KUBECONFIG": str(path)}, [])
    [entry] = yaml.safe_load(found.kubeconfig)["users"]
    assert entry["user"]["client-key"] == str(tmp_path / "sub" / "me.key")
    assert entry["user"]["exec"]["command"] == str(tmp_path / "sub" / "bin" / "login")


@pytest.mark.parametrize(
    ("names", "message"),
    [(["wset"], r"--context wset: not in .*config \(known: west\)"), ([], "no current context")],
)
def test_a_context_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, names: list[str], message: str
) -> None:
    path = kubeconfig(tmp_path / "config", "west", {})
    with pytest.raises(ProfileError, match=message):
        read_contexts({"KUBECONFIG": str(path)}, names)


def test_without_any_kubeconfig_the_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="set KUBECONFIG"):
        read_contexts({"HOME": str(tmp_path)}, [])


def test_a_pod_without_a_kubeconfig_is_its_service_account(tmp_path: Path, account: Path) -> None:
    """The token is named by its file, as Kubernetes replaces it before it expires."""
    environment = {**POD, "HOME": str(tmp_path)}
    for names in ([], ["in-cluster"]):
        [found] = read_contexts(environment, names, account)
        assert found.name == "in-cluster"
        assert found.cluster == {
            "server": "https://10.96.0.1:443",
            "certificate-authority": str(account / "ca.crt"),
        }
        assert found.user == {"tokenFile": str(account / "token")}


def test_an_address_of_ipv6_gets_its_brackets(tmp_path: Path, account: Path) -> None:
    environment = {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1", "HOME": str(tmp_path)}
    [found] = read_contexts(environment, [], account)
    assert found.cluster["server"] == "https://[fd00::1]:443"


def test_a_kubeconfig_comes_before_the_service_account(tmp_path: Path, account: Path) -> None:
    """So that a pod can measure another cluster than its own; one that is missing is named."""
    path = kubeconfig(tmp_path / "config", "west", {}, current="west")
    [found] = read_contexts({**POD, "KUBECONFIG": str(path)}, [], account)
    assert found.name == "west"
    with pytest.raises(ProfileError, match="missing: no such kubeconfig"):
        read_contexts({**POD, "KUBECONFIG": str(tmp_path / "missing")}, [], account)


def test_a_pod_has_no_other_context(tmp_path: Path, account: Path) -> None:
    environment = {**POD, "HOME": str(tmp_path)}
    with pytest.raises(ProfileError, match=r"--context west: not in .* \(known: in-cluster\)"):
        read_contexts(environment, ["west"], account)


def test_outside_of_a_pod_no_account_is_looked_for(tmp_path: Path, account: Path) -> None:
    """Nor in a pod whose ServiceAccount is not mounted."""
    with pytest.raises(ProfileError, match="set KUBECONFIG"):
        read_contexts({"HOME": str(tmp_path)}, [], account)
    (account / "token").unlink()
    with pytest.raises(ProfileError, match="set KUBECONFIG"):
        read_contexts({**POD, "HOME": str(tmp_path)}, [], account)


def test_a_run_says_which_pod_started_it(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By which the end of a release tells its own run from another's."""
    monkeypatch.setattr("platform.node", lambda: "run-runner-x7k2p")
    run = f"smoke-1, started by {starter(POD, account)}"
    assert run == "smoke-1, started by pod scaletest/run-runner-x7k2p"
    assert started_by_job(run, "scaletest", "run-runner")
    assert not started_by_job(run, "other", "run-runner")
    assert not started_by_job(run, "scaletest", "run")


def test_a_container_that_knows_no_users_can_start_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image runs as a number that no file has a name for."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert starter({}).startswith("user ")
