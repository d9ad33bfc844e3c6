"""A worker on another host reaches the run's clusters by kubeconfigs of its own."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from loaddriver.errors import InfrastructureError
from loaddriver.load.files import ClusterEndpoint
from loaddriver.load.kubeconfigs import endpoints_for, endpoints_in


def write(path: Path, **cluster: str) -> None:
    """Write a kubeconfig with a token."""
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def test_both_layouts_of_a_folder_are_read(tmp_path: Path) -> None:
    """Flat, and as a pod of charts/scaletest has it."""
    ca = base64.b64encode(b"PEM").decode()
    write(tmp_path / "c1.kubeconfig", server="https://a", **{"certificate-authority": "/ca"})
    write(
        tmp_path / "c2" / "load-driver.kubeconfig",
        server="https://b",
        **{"certificate-authority-data": ca},
    )
    assert endpoints_in(tmp_path, ["c1", "c2"]) == {
        "c1": ClusterEndpoint(name="c1", url="https://a", token="t", ca_file="/ca"),
        "c2": ClusterEndpoint(name="c2", url="https://b", token="t", ca_pem="PEM"),
    }


def test_a_token_is_not_sent_to_a_server_that_cannot_be_verified(tmp_path: Path) -> None:
    write(tmp_path / "c1.kubeconfig", server="https://a")
    with pytest.raises(InfrastructureError, match=r"c1.kubeconfig: has no certificate authority"):
        endpoints_in(tmp_path, ["c1"])


def test_what_is_missing_or_unreadable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"neither .*c1.kubeconfig nor .* exists"):
        endpoints_in(tmp_path, ["c1"])
    (tmp_path / "c1.kubeconfig").write_text("[]")
    with pytest.raises(InfrastructureError, match=r"c1.kubeconfig: is not a kubeconfig"):
        endpoints_in(tmp_path, ["c1"])


def test_endpoints_come_in_the_order_of_the_plan_and_must_be_the_runners() -> None:
    own = {name: ClusterEndpoint(name=name, url=f"https://{name}", token="t") for name in "ab"}
    ordered = endpoints_for([("b", "https://b"), ("a", "https://a")], own)
    assert [each.name for each in ordered] == ["b", "a"]
    with pytest.raises(InfrastructureError, match="its a is https://a, the runner's is https://z"):
        endpoints_for([("a", "https://z")], own)
    with pytest.raises(InfrastructureError, match="no credentials for c"):
        endpoints_for([("c", "https://c")], own)
