"""Where the claims of Pods let them run; claims, volumes and classes are watched on demand.

A bound claim restricts its Pods to where its volume can be reached. An unbound one of a class with
WaitForFirstConsumer restricts them to where the class may provision a volume, or without a
provisioner to where there is a suitable free volume. With any other unbound claim kube-scheduler
does not schedule the Pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Generic, TypeVar

from bigfleet.controllers.pod_controller.free_volumes import free_choices, has_no_provisioner
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.storage import (
    Choices,
    Claim,
    ClaimKey,
    StorageClass,
    Volume,
    claims_of,
    class_choices,
    volume_choices,
)
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Listed, Watch

_FIRST_CONSUMER = "WaitForFirstConsumer"

K = TypeVar("K", Claim, Volume, StorageClass)


class _Cache(Generic[K]):
    """All objects of one kind by key, from a watch."""

    def __init__(self, watch: Watch[K]) -> None:
        self._watch: Watch[K] = watch
        self._listed = False
        self._objects: dict[ClaimKey, K] = {}

    def not_listed(self) -> str:
        if self._listed:
            return ""
        return f"{self._watch.path} is not listed yet {self._watch.stats.last_error}".strip()

    def get(self, name: str, namespace: str = "") -> K | None:
        return self._objects.get((namespace, name))

    def all(self) -> Iterable[K]:
        return self._objects.values()

    async def follow(self, changed: Callable[[K | None], None]) -> None:
        """Call `changed` with each changed object, and with None after a list."""
        async with aclosing(self._watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._objects = {_key_of(item): item for item in change.items}
                    self._listed = True
                    changed(None)
                    continue
                if change.deleted:
                    self._objects.pop(_key_of(change.item), None)
                else:
                    self._objects[_key_of(change.item)] = change.item
                changed(change.item)


def _key_of(item: Claim | Volume | StorageClass) -> ClaimKey:
    return item.metadata.namespace, item.metadata.name


class Volumes:
    """The constraints from the claims of Pods. `changed` is called with each Pod whose constraints
    may have changed. Nothing is watched before the first Pod with a claim.
    """

    def __init__(self, client: KubeClient, changed: Callable[[Pod], None]) -> None:
        core, storage = "/api/v1", "/apis/storage.k8s.io/v1"
        self._claims: _Cache[Claim] = _Cache(Watch(client, f"{core}/persistentvolumeclaims", Claim))
        self._volumes: _Cache[Volume] = _Cache(Watch(client, f"{core}/persistentvolumes", Volume))
        self._classes: _Cache[StorageClass] = _Cache(
            Watch(client, f"{storage}/storageclasses", StorageClass)
        )
        self._changed = changed
        self._needed = asyncio.Event()
        self._pods: dict[str, Pod] = {}
        self._users: dict[ClaimKey, set[str]] = {}

    def not_ready(self) -> str:
        """Why the claims of Pods are not known yet; "" once they are, or when there are none."""
        if not self._needed.is_set():
            return ""
        every = (self._claims, self._volumes, self._classes)
        return next((reason for cache in every if (reason := cache.not_listed())), "")

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._needed.wait()
        async with asyncio.TaskGroup() as watches:
            watches.create_task(self._claims.follow(self._claim_changed))
            watches.create_task(self._volumes.follow(self._volume_changed))
            watches.create_task(self._classes.follow(lambda _: self._recheck(set(self._pods))))

    def observe(self, pod: Pod, wants: bool) -> bool:
        """Track the Pod's claims, if it `wants` a machine; False until claims are listed."""
        self.forget(pod.metadata.uid)
        claims = set(claims_of(pod)) if wants else ()
        if not claims:
            return True
        self._pods[pod.metadata.uid] = pod
        for claim in claims:
            self._users.setdefault(claim, set()).add(pod.metadata.uid)
        self._needed.set()
        return not self.not_ready()

    def forget(self, uid: str) -> None:
        """Stop tracking a Pod, if it is tracked."""
        pod = self._pods.pop(uid, None)
        for claim in set(claims_of(pod)) if pod else ():
            self._users[claim].discard(uid)
            if not self._users[claim]:
                del self._users[claim]

    def forget_all(self) -> None:
        """Stop tracking all Pods."""
        self._pods.clear()
        self._users.clear()

    def choices_of(self, pod: Pod) -> Choices | None:
        """Where the Pod's claims let it run; None while kube-scheduler waits for one of them.

        Unsupported for an unbound Pod that no new machine can serve; a bound one runs on its Node
        anyway.
        """
        found: Choices = []
        for namespace, name in claims_of(pod):
            try:
                choices = self._choices(namespace, name)
            except Unsupported:
                if not pod.spec.node_name:
                    raise
                choices = []
            if choices is None and not pod.spec.node_name:
                return None
            found += choices or []
        return found

    def _choices(self, namespace: str, name: str) -> Choices | None:
        claim = self._claims.get(name, namespace)
        if claim is None:
            return None
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            return None if volume is None else volume_choices(volume)
        storage_class = self._classes.get(claim.storage_class)
        if storage_class is None or storage_class.volume_binding_mode != _FIRST_CONSUMER:
            return None
        free = (
            free_choices(claim, self._volumes.all()) if has_no_provisioner(storage_class) else None
        )
        return class_choices(storage_class) if free is None else free

    def _claim_changed(self, claim: Claim | None) -> None:
        self._recheck(set(self._pods) if claim is None else self._users.get(_key_of(claim), ()))

    def _volume_changed(self, volume: Volume | None) -> None:
        if volume is None:
            self._recheck(set(self._pods))
        else:
            owner = volume.spec.claim_ref
            self._recheck(self._users.get((owner.namespace, owner.name), ()))
            self._recheck(self._waiting_for(volume.spec.storage_class_name))

    def _waiting_for(self, class_name: str) -> list[str]:
        """Pods with unbound claims that any volume of this class may satisfy."""
        storage_class = self._classes.get(class_name)
        if storage_class is None or not has_no_provisioner(storage_class):
            return []
        return [
            uid
            for (namespace, name), users in self._users.items()
            if (claim := self._claims.get(name, namespace)) is not None
            and claim.storage_class == class_name
            and not claim.spec.volume_name
            for uid in users
        ]

    def _recheck(self, uids: Iterable[str]) -> None:
        if self.not_ready():
            return
        for uid in list(uids):
            if uid in self._pods:
                self._changed(self._pods[uid])
