"""A complete capacity provider in one file.

    python examples/provider/provider.py HOST:PORT STATE-FILE [IDENTITY-DIRECTORY]

Replace `Shop` by the API of your cloud; the rest is the same for every provider.
"""

import asyncio
import json
import sqlite3
import ssl
import sys
from pathlib import Path

import aiohttp
import grpc.aio
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1 import provider_pb2_grpc as rpc

# Order: the state that it requires, its transitional state, its final state.
ORDERS = {
    "Create": (wire.SPECULATIVE, wire.CREATING, wire.IDLE),
    "Configure": (wire.IDLE, wire.CONFIGURING, wire.CONFIGURED),
    "Drain": (wire.CONFIGURED, wire.DRAINING, wire.IDLE),
    "Delete": (wire.IDLE, wire.DELETING, wire.SPECULATIVE),
}
BLOB, GRACE = "bootstrap_blob", "grace_period_seconds"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
SIMULATED = {"kwok.x-k8s.io/node": "fake"}  # nothing to whoever is not kwok
MERGE = {"Content-Type": "application/merge-patch+json"}
ENDS = {during: final for _, during, final in ORDERS.values()}


class Refused(Exception):
    """An order that is not accepted: the name of a gRPC status code, and the reason."""


class Shop:
    """Your cloud. A call may be repeated after a crash, and must then find what it began."""

    async def buy(self, machine: wire.Machine) -> str:
        """Return the machine's name in your cloud once it is allocated."""
        return f"rack-7/{machine.id}"

    async def boot(self, machine: wire.Machine, blob: bytes) -> None:
        """Return once the machine's Node is Ready. Here this method plays the machine."""
        facts, own = json.loads(blob), MessageToDict(machine)
        labels = {TYPE: machine.instance_type, ZONE: machine.zone, **machine.labels}
        labels, amounts = facts.get("labels", {}) | labels, own["resources"]["resources"]
        status = {"capacity": amounts, "conditions": [{"type": "Ready", "status": "False"}]}
        status["allocatable"] = own.get("allocatable", {}).get("resources", amounts)
        node = {"metadata": {"name": machine.id, "labels": labels, "annotations": SIMULATED}}
        node |= {"kind": "Node", "spec": {"taints": own.get("taints", [])}, "status": status}
        nodes, exists, seen = f"{facts['apiServer']}/api/v1/nodes", False, []
        headers = {"Authorization": f"Bearer {facts['token']}"}
        tls = ssl.create_default_context(cadata=facts["caPem"]) if facts.get("caPem") else True
        async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
            while ("Ready", "True") not in seen:
                if not exists:  # nor may a new token be used at once
                    (await http.post(nodes, json=node, ssl=tls)).close()
                patch = http.patch(f"{nodes}/{machine.id}", data="{}", headers=MERGE, ssl=tls)
                async with patch as answer:  # the token may not read the Node; this answers with it
                    exists, found = answer.ok, await answer.json()
                conditions = found["status"].get("conditions", []) if exists else []
                seen = [(c["type"], c["status"]) for c in conditions]
                await asyncio.sleep(0.1)

    async def switch_off(self, _machine: wire.Machine, grace_seconds: int) -> None:
        """Return once no pod of the cluster runs there, after the grace period at the latest."""
        await asyncio.sleep(grace_seconds)

    async def release(self, _machine: wire.Machine) -> None:
        """Return once the machine is no longer billed."""


class Store:
    """Machines, the last operation of each, and fences: durable before an order is answered."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        make = "CREATE TABLE IF NOT EXISTS"
        self.db.execute(f"{make} machine (id PRIMARY KEY, json, operation, blob, grace, revision)")
        self.db.execute(f"{make} mark (shard, id, epoch, sequence, PRIMARY KEY (shard, id))")
        self.revision = self.db.execute("SELECT max(revision) FROM machine").fetchone()[0] or 0

    def machines(self, since: int = 0) -> list[tuple[int, wire.Machine]]:
        query = "SELECT revision, json FROM machine WHERE revision > ? ORDER BY revision"
        return [(at, Parse(text, wire.Machine())) for at, text in self.db.execute(query, (since,))]

    def get(self, id: str) -> tuple[wire.Machine, str, bytes, int]:
        query = "SELECT json, operation, blob, grace FROM machine WHERE id = ?"
        row = self.db.execute(query, (id,)).fetchone()
        if row is None:
            raise Refused("NOT_FOUND", f"there is no machine {id}")
        return Parse(row[0], wire.Machine()), *row[1:]

    def save(self, machine: wire.Machine, operation: str, blob: bytes, grace: int) -> None:
        self.revision += 1
        row = (machine.id, MessageToJson(machine), operation, blob, grace, self.revision)
        self.db.execute("INSERT OR REPLACE INTO machine VALUES (?, ?, ?, ?, ?, ?)", row)

    def advance(self, order) -> None:
        """Fencing: per shard and machine, (epoch, sequence) only ever increases."""
        key, fence = (order.shard_id, order.machine_id), (order.shard_epoch, order.sequence_number)
        query = "SELECT epoch, sequence FROM mark WHERE shard = ? AND id = ?"
        newest = self.db.execute(query, key).fetchone()
        if newest is not None and fence <= newest:
            raise Refused("FAILED_PRECONDITION", f"{fence} is not newer than {key}: {newest}")
        self.db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)", (*key, *fence))


def answering(read):
    async def call(self, request, context):
        try:
            return read(self, request)
        except Refused as error:
            await context.abort(grpc.StatusCode[error.args[0]], error.args[1])

    return call


class Provider(rpc.CapacityProviderServicer):
    """The contract: accept and persist, answer, then work."""

    def __init__(self, store: Store, shop: Shop) -> None:
        self.store, self.shop, self.tasks = store, shop, set()
        for _, machine in store.machines():  # resume what was in progress
            self.resume(machine)

    Create = answering(lambda self, request: self.accept("Create", request))
    Configure = answering(lambda self, request: self.accept("Configure", request))
    Drain = answering(lambda self, request: self.accept("Drain", request))
    Delete = answering(lambda self, request: self.accept("Delete", request))
    Get = answering(lambda self, request: self.store.get(request.id)[0])
    List = answering(lambda self, request: self.select(request))

    def select(self, ask: wire.ListFilter) -> wire.MachineList:
        begin = ask.page_token or ask.since_revision  # unknown or invalid: list everything
        known = begin.isdigit() and int(begin) <= self.store.revision
        if ask.page_token and not known:
            raise Refused("INVALID_ARGUMENT", "page_token: begin again without one")
        rows = self.store.machines(int(begin) if known else 0)  # in the order of their changes
        found = [(at, m) for at, m in rows if not ask.states or m.state in ask.states]
        page = [machine for _, machine in found[: ask.max_results or None]]
        more = str(found[len(page) - 1][0]).encode() if len(page) < len(found) else b""
        revision = more or str(self.store.revision).encode()
        return wire.MachineList(machines=page, revision=revision, next_page_token=more)

    def accept(self, order: str, request) -> wire.TransitionAck:
        machine, operation, *_ = self.store.get(request.machine_id)
        self.store.advance(request)  # before any other check
        (required, during, final), state = ORDERS[order], wire.MachineState.Name(machine.state)
        cluster = getattr(request, "cluster_id", machine.cluster)
        if machine.state in (during, final) and machine.cluster == cluster:
            return wire.TransitionAck(operation_id=operation, machine=machine)  # a retry
        if machine.state != required and (machine.state, order) != (wire.FAILED, "Delete"):
            raise Refused("ABORTED", f"{order} is not possible: machine {machine.id} is {state}")
        machine.state, machine.cluster, machine.last_error = during, cluster, ""
        if order in ("Create", "Configure"):
            machine.ClearField("shard_metadata")
            machine.shard_metadata.update(request.shard_metadata)
        operation = f"{machine.id}-{self.store.revision + 1}"
        self.store.save(machine, operation, getattr(request, BLOB, b""), getattr(request, GRACE, 0))
        self.resume(machine)
        return wire.TransitionAck(operation_id=operation, machine=machine)

    def resume(self, machine: wire.Machine) -> None:
        if machine.state in ENDS:
            task = asyncio.create_task(self.work(*self.store.get(machine.id)))
            self.tasks.add(task)  # the event loop keeps only a weak reference
            task.add_done_callback(self.tasks.discard)

    async def work(self, machine: wire.Machine, operation: str, blob: bytes, grace: int) -> None:
        try:
            await self.execute(machine, blob, grace)
        except Exception as error:  # noqa: BLE001  what cannot succeed ends in FAILED
            machine.state, machine.last_error = wire.FAILED, repr(error)
        self.store.save(machine, operation, b"", 0)

    async def execute(self, machine: wire.Machine, blob: bytes, grace: int) -> None:
        if machine.state == wire.CREATING:
            machine.host.provider, machine.host.ref = "shop", await self.shop.buy(machine)
        elif machine.state == wire.CONFIGURING:
            await self.shop.boot(machine, blob)
        elif machine.state == wire.DRAINING:
            await self.shop.switch_off(machine, grace)
        else:
            await self.shop.release(machine)
            machine.ClearField("host")
        if machine.state in (wire.DRAINING, wire.DELETING):
            machine.ClearField("cluster")
            machine.ClearField("shard_metadata")
        machine.state = ENDS[machine.state]


async def serve(listen: str, state: str, credentials: str = "") -> None:
    store, identity = Store(Path(state)), Identity(Path(credentials)) if credentials else None
    for n in range(0 if store.revision else 3):  # the machines that can be bought
        slow = [{"key": "example.com/slow", "effect": "NoSchedule"}] if n == 2 else []
        machine = wire.Machine(id=f"shop-{n}", instance_type="large", zone="zone-a", taints=slow)
        machine.state, machine.capacity_type = wire.SPECULATIVE, wire.ON_DEMAND
        machine.resources.resources.update({"cpu": "4", "memory": "16Gi", "pods": "110"})
        store.save(machine, "", b"", 0)
    server = transport.server(identity)
    rpc.add_CapacityProviderServicer_to_server(Provider(store, Shop()), server)
    print(f"listening on port {transport.listen(server, listen, identity)}", flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
