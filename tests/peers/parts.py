"""A cluster's own parts of BigFleet beside Nodes that are all there, to tell what each costs a pod.

    loaddriver run knee-50 --set system=command \
      --set 'command.start=.venv/bin/python -m tests.peers.parts --part pod-controller' \
      --set 'command.ready=.venv/bin/python -m tests.peers.parts --ready' \
      --set 'command.nodeSelector={example.com/parts: apart}' ...

registers the fleet's machines as Nodes and starts the parts named: none, the pod controller, or
that and the operator (a second `--part`), which finds no shard. The difference of two such runs is
what a part costs, with all that its requests cause in the API server and beyond.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bigfleet.api.install import install
from bigfleet.kube.client import KubeClient
from loaddriver.run.node_source import node_object
from loaddriver.run.paired_run import ServedNode
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.ports import free_port

_OWN_LABEL = {"example.com/parts": "apart"}
_NODES_AT_ONCE = 20
# Nobody listens there.
_NO_SHARD = "127.0.0.1:1"


def commands(parts: Sequence[str], cluster: str) -> Iterator[list[str]]:
    """The command line of each part."""
    for part in parts:
        more = ["--cluster-id", cluster, "--shard", _NO_SHARD, "--insecure"]
        line = [sys.executable, "-m", "bigfleet", part, "--observe", f"127.0.0.1:{free_port()}"]
        kubeconfig = ["--kubeconfig", os.environ["KUBECONFIG"]]
        yield [*line, *kubeconfig, *(more if part == "operator" else [])]


async def prepare(machines: Sequence[InventoryMachine], cluster: str) -> None:
    """Install BigFleet's resources, and register the machines as Nodes."""
    at_once = asyncio.Semaphore(_NODES_AT_ONCE)
    async with await KubeClient.from_kubeconfig(Path(os.environ["KUBECONFIG"])) as client:
        await install(client)

        async def register(machine: InventoryMachine) -> None:
            body = node_object(ServedNode(cluster=cluster, machine=machine))
            body["metadata"]["labels"].update(_OWN_LABEL)
            async with at_once:
                await client.create("/api/v1/nodes", body)

        await asyncio.gather(*(register(each) for each in machines))


async def serve(parts: Sequence[str], machines: Sequence[InventoryMachine], cluster: str) -> None:
    """Run the parts until ended by a signal."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await prepare(machines, cluster)
    running = [await asyncio.create_subprocess_exec(*line) for line in commands(parts, cluster)]
    await ended.wait()
    for process in running:
        process.terminate()
    await asyncio.gather(*(process.wait() for process in running))


async def are_ready(machines: Sequence[InventoryMachine]) -> bool:
    """Whether all machines are Nodes that take pods."""
    async with await KubeClient.from_kubeconfig(Path(os.environ["KUBECONFIG"])) as client:
        nodes = msgspec.json.decode(await client.get("/api/v1/nodes"))["items"]
    ready = {
        node["metadata"]["name"]
        for node in nodes
        for each in node["status"].get("conditions", [])
        if each["type"] == "Ready" and each["status"] == "True" and not node["spec"].get("taints")
    }
    return {each.id for each in machines} <= ready


def main() -> None:
    """Run the parts, or look whether they are ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part", action="append", default=[], choices=["pod-controller", "operator"]
    )
    parser.add_argument("--ready", action="store_true", help="only look whether all is ready")
    options, cluster = parser.parse_args(), os.environ["SCALETEST_CLUSTER"]
    lines = Path(os.environ["SCALETEST_FLEET"]).read_bytes()
    machines = msgspec.json.Decoder(InventoryMachine).decode_lines(lines)
    if options.ready:
        sys.exit(0 if asyncio.run(are_ready(machines)) else 1)
    asyncio.run(serve(options.part, machines, cluster))


if __name__ == "__main__":
    main()
