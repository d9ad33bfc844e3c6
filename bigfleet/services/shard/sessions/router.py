"""Decides whether an operator is served here, or redirected to another shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bigfleet.api.v1alpha1.shard_pb2 import Redirect
from bigfleet.model.errors import BigFleetError, Unavailable, UnknownObject
from bigfleet.ports.coordinator import Coordinator
from bigfleet.services.shard.fleet.ownership import Ownership

_BATCH_SECONDS = 0.05


class SessionRouter:
    """A cluster known as this shard's is served whether or not a coordinator answers.

    `fenced` returns why this shard must not serve any cluster, "" if it may.
    """

    def __init__(
        self,
        shard_id: str,
        ownership: Ownership,
        coordinator: Coordinator,
        fenced: Callable[[], str],
    ) -> None:
        self._shard_id, self._ownership, self._coordinator = shard_id, ownership, coordinator
        self._fenced = fenced

    async def redirect_for(self, cluster: str) -> Redirect | None:
        """A redirect to the shard of `cluster`, None for this shard. Unavailable if unknown."""
        if why := self._fenced():
            raise Unavailable(why)
        if cluster in self._ownership.clusters:
            return None
        try:
            owner = await self._coordinator.resolve(cluster, self._shard_id)
        except BigFleetError as error:
            raise _unresolved(cluster, error) from None
        if owner.shard_id == self._shard_id:
            await self._learn(cluster)
            return None
        if not owner.shard_address:
            raise Unavailable(
                f"cluster {cluster} is served by shard {owner.shard_id}, whose address is unknown "
                "until its next report"
            )
        return Redirect(shard_id=owner.shard_id, address=owner.shard_address)

    async def is_assigned(self, cluster: str) -> bool:
        """Whether this shard serves `cluster`, which the coordinator knows if the shard has lost
        its disk. Unavailable if it does not answer.
        """
        if cluster in self._ownership.clusters:
            return True
        try:
            owner = await self._coordinator.resolve(cluster, self._shard_id, assigned_only=True)
        except UnknownObject:
            return False
        except BigFleetError as error:
            raise _unresolved(cluster, error) from None
        if owner.shard_id != self._shard_id:
            return False
        await self._learn(cluster)
        return True

    async def _learn(self, cluster: str) -> None:
        self._ownership.add_cluster(cluster)
        await self._save_soon(cluster)

    async def _save_soon(self, cluster: str) -> None:
        """Save ownership, once for clusters that connect at the same time."""
        await asyncio.sleep(_BATCH_SECONDS)
        if not self._ownership.is_saved(cluster):
            self._ownership.save()


def _unresolved(cluster: str, error: BigFleetError) -> Unavailable:
    return Unavailable(
        f"cluster {cluster} is unknown to this shard, and the coordinator did not resolve it: "
        f"{error}"
    )
