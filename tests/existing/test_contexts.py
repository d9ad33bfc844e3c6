"""A context is found as kubectl finds it, and becomes a file that works anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.errors import ProfileError
from loaddriver.substrates.existing.contexts import read_contexts


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
