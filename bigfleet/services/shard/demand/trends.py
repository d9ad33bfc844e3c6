"""When each cluster's demand last grew, and when it last shrank."""

from __future__ import annotations

from collections.abc import Mapping

from bigfleet.model.need import ADDITIONAL_GROUP, Need

_Key = tuple[str, str]


class Trends:
    """By cluster number, the moments in seconds on the shard's clock; none until it has happened.

    Both may happen at once: one need grows while another shrinks.
    """

    def __init__(self) -> None:
        self.rose_seconds: dict[int, float] = {}
        self.fell_seconds: dict[int, float] = {}

    def note(
        self,
        cluster: int,
        before: Mapping[_Key, Need],
        after: Mapping[_Key, Need],
        now_seconds: float,
    ) -> None:
        """A cluster's needs are replaced. Additional ones do not count: they come and go with where
        kube-scheduler happens to put pods.
        """
        old = {key for key in before if key[1] != ADDITIONAL_GROUP}
        new = {key for key in after if key[1] != ADDITIONAL_GROUP}
        rose, fell = bool(new - old), bool(old - new)
        for key in old & new:
            one, other = before[key], after[key]
            if one is not other and one.sizes != other.sizes:
                rose |= _has_grown(one, other)
                fell |= _has_grown(other, one)
        if rose:
            self.rose_seconds[cluster] = now_seconds
        if fell:
            self.fell_seconds[cluster] = now_seconds

    def forget(self, cluster: int) -> None:
        """The cluster is gone."""
        self.rose_seconds.pop(cluster, None)
        self.fell_seconds.pop(cluster, None)


def _has_grown(before: Need, after: Need) -> bool:
    """In the number of pods, or in what as many of them ask for."""
    if after.pods != before.pods:
        return after.pods > before.pods
    return any(amount > before.aggregate.get(name, 0) for name, amount in after.aggregate.items())
