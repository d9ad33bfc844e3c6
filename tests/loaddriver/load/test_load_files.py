from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import InfrastructureError
from loaddriver.load.files import (
    ClusterEndpoint,
    Control,
    ResultReader,
    StepReleased,
    cluster_endpoint,
    read_control,
    read_endpoints,
    write_control,
    write_endpoints,
)

KUBECONFIG = """
current-context: b
contexts:
- {name: a, context: {cluster: x, user: nobody}}
- {name: b, context: {cluster: y, user: us}}
clusters:
- {name: x, cluster: {server: "https://wrong"}}
- {name: y, cluster: {server: "https://right", certificate-authority: /ca.crt}}
users:
- {name: nobody, user: {token: wrong}}
- {name: us, user: {token: secret}}
"""


def test_a_kubeconfig_gives_the_endpoint_of_its_current_context(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    assert cluster_endpoint("cluster-0", path) == ClusterEndpoint(
        name="cluster-0", url="https://right", token="secret", ca_file="/ca.crt"
    )


def test_a_kubeconfig_without_a_token_is_rejected_by_name(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.replace("token: secret", "client-key: /key"))
    with pytest.raises(InfrastructureError, match=r"kubeconfig: .* has no token"):
        cluster_endpoint("cluster-0", path)


def test_the_load_process_reads_what_the_runner_writes(tmp_path: Path) -> None:
    endpoints = [ClusterEndpoint(name="a", url="https://a", token="t", ca_file=None)]
    releases = StepReleased(step=0, at=1.5), StepReleased(step=2, at=3.25, stretch=1.5)
    control = Control().released(releases[0]).released(releases[1]).stopped()
    write_endpoints(endpoints, tmp_path / "clusters.json")
    write_control(control, tmp_path / "control.json")
    assert read_endpoints(tmp_path / "clusters.json") == endpoints
    assert read_control(tmp_path / "control.json") == control
    assert control.releases == releases
    assert releases[1].due(2.0) == 6.25


def test_a_partially_written_result_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    reader = ResultReader(path)
    assert reader.new_lines() == []
    path.write_bytes(b'{"type":"started","at":1.0}\n{"type":"sta')
    assert [line.at for line in reader.new_lines() if hasattr(line, "at")] == [1.0]
    assert reader.new_lines() == []
    with path.open("ab") as file:
        file.write(b'rted","at":2.0}\n')
    assert [line.at for line in reader.new_lines() if hasattr(line, "at")] == [2.0]
