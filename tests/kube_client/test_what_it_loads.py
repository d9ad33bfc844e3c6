"""A process that uses a cluster loads no more of the official client than it uses."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
import bigfleet.kube.client
print(*({"requests", "urllib3"} & set(sys.modules)))
import kubernetes.aio
from kubernetes import client, config
print(client.CoreV1Api.__name__, config.load_kube_config.__name__)
from kubernetes.aio import dynamic
print(dynamic.DynamicClient.__name__)
"""


def test_the_blocking_half_is_loaded_by_those_who_import_it_only() -> None:
    """And then as it is, not what stood for it."""
    said = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["", "CoreV1Api load_kube_config", "DynamicClient"]
