"""Whether an operator that greets is served here, or where else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bigfleet.api.v1alpha1.shard_pb2 import Redirect
from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.ports.coordinator import Coordinator
from bigfleet.services.shard.coordination.estate import Estate

_TOGETHER_SECONDS = 0.05


class Reception:
    """A cluster that is known as this shard's is served whether or not a coordinator answers.

    `barred` says why this shard must not serve anybody any more, "" as long as it may.
    """

    def __init__(
        self,
        shard_id: str,
        estate: Estate,
        coordinator: Coordinator,
        barred: Callable[[], str],
    ) -> None:
        self._shard_id, self._estate, self._coordinator = shard_id, estate, coordinator
        self._barred = barred

    async def elsewhere(self, cluster: str) -> Redirect | None:
        """Who serves `cluster`, None when this shard does. Unavailable when nobody can tell."""
        if why := self._barred():
            raise Unavailable(why)
        if cluster in self._estate.clusters:
            return None
        try:
            owner = await self._coordinator.resolve(cluster, self._shard_id)
        except BigFleetError as error:
            raise _unresolved(cluster, error) from None
        if owner.shard_id == self._shard_id:
            self._estate.add_cluster(cluster)
            await self._keep(cluster)
            return None
        if not owner.shard_address:
            raise Unavailable(
                f"cluster {cluster} is served by shard {owner.shard_id}, whose address is not "
                "known; it tells it with its next report"
            )
        return Redirect(shard_id=owner.shard_id, address=owner.shard_address)

    async def _keep(self, cluster: str) -> None:
        """Clusters that come at the same time are written down together."""
        await asyncio.sleep(_TOGETHER_SECONDS)
        if not self._estate.is_kept(cluster):
            self._estate.save()


def _unresolved(cluster: str, error: BigFleetError) -> Unavailable:
    return Unavailable(
        f"cluster {cluster} is not known to shard here, and the coordinator does not say whose it "
        f"is: {error}"
    )
