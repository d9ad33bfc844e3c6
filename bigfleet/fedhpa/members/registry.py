"""The registry of members, from one Secret each in the federation's namespace.

A Secret's name is the cluster's name, selectors match its labels, and its key `kubeconfig` has the
access. Deleting the Secret removes the member. A member whose kubeconfig is rejected counts as
unreachable: it keeps its share, and its status says why.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from bigfleet.api.install_fedhpa import FEDHPA_NAMESPACE
from bigfleet.fedhpa.members import kubeconfig
from bigfleet.fedhpa.members.link import MemberLink
from bigfleet.fedhpa.members.state import Listeners, MemberState
from bigfleet.fedhpa.objects import Metadata
from bigfleet.kube.client import InlineAccess, KubeClient
from bigfleet.kube.watch import Listed, Watch
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
SECRET_TYPE = "bigfleet.lucy.sh/cluster"
SECRETS = f"/api/v1/namespaces/{FEDHPA_NAMESPACE}/secrets"
_KEY = "kubeconfig"


class Secret(msgspec.Struct):
    """A member's Secret."""

    metadata: Metadata
    data: dict[str, str] = {}


def member_secret(
    name: str, kubeconfig: str, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The Secret that registers a member; `kubeconfig` must be self-contained."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": FEDHPA_NAMESPACE, "labels": labels or {}},
        "type": SECRET_TYPE,
        "stringData": {_KEY: kubeconfig},
    }


class MemberRegistry:
    """All members, with a link for each; `listed` is set once the Secrets are listed."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self.links: dict[str, MemberLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.listed = asyncio.Event()

    @property
    def members(self) -> dict[str, MemberState]:
        """The state of each member."""
        return {name: link.state for name, link in self.links.items()}

    @property
    def reachability_known(self) -> bool:
        """Whether all members are listed and have been probed."""
        return self.listed.is_set() and all(m.state.reachability_known for m in self.links.values())

    @property
    def labels(self) -> dict[str, Mapping[str, str]]:
        """Each member's labels."""
        return {name: link.state.labels for name, link in self.links.items()}

    async def follow(self, host: KubeClient) -> None:
        """Watch the Secrets, and all members, until cancelled."""
        watch = Watch(host, SECRETS, Secret, {"fieldSelector": f"type={SECRET_TYPE}"})
        try:
            async with aclosing(watch.follow()) as changes:
                async for change in changes:
                    if isinstance(change, Listed):
                        self._replace(change.items)
                    elif change.deleted:
                        self._remove(change.item.metadata.name)
                    else:
                        self._put(change.item)
        finally:
            for name in list(self.links):
                self._remove(name)
            await asyncio.gather(*self._ending, return_exceptions=True)

    def _replace(self, secrets: list[Secret]) -> None:
        for gone in set(self.links) - {s.metadata.name for s in secrets}:
            self._remove(gone)
        for secret in secrets:
            self._put(secret)
        self.listed.set()
        self._listeners.reachability()

    def _put(self, secret: Secret) -> None:
        name = secret.metadata.name
        access, rejected = _access(secret)
        known = self.links.get(name)
        if known is not None and (known.access, known.rejected) == (access, rejected):
            known.state.labels = secret.metadata.labels
        else:
            if known is not None:
                self._end(name)
            state = MemberState(name, secret.metadata.labels, self._listeners)
            link = self.links[name] = MemberLink(state, access, rejected)
            self._tasks[name] = asyncio.create_task(link.run())
        self._listeners.reachability()

    def _remove(self, name: str) -> None:
        if name in self.links:
            self._end(name)
            self._listeners.reachability()

    def _end(self, name: str) -> None:
        del self.links[name]
        task = self._tasks.pop(name)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        metrics.fedhpa_reachable.remove(name)


def _access(secret: Secret) -> tuple[InlineAccess | None, str]:
    """The member's access, or why it is rejected: one Secret must not block the others."""
    what = f"Secret {FEDHPA_NAMESPACE}/{secret.metadata.name}: {_KEY}"
    try:
        if _KEY not in secret.data:
            raise InvalidInput(what, None, "is missing; it must be a kubeconfig")
        text = base64.b64decode(secret.data[_KEY]).decode()
        return kubeconfig.parse_access(text, what), ""
    except InvalidInput as error:
        return None, str(error)
    except UnicodeDecodeError:
        return None, f"{what}: is not text"
    except Exception as error:  # noqa: BLE001 - unexpected errors are reported
        metrics.internal_errors.inc()
        _LOG.exception("unexpected error for %s; this is a bug", what)
        return None, f"{what}: {error!r}"
