"""Which shard an operator dials next."""

from __future__ import annotations

from collections.abc import Sequence


class ShardAddressList:
    """`address` is the one to dial now. After a failure the next of `addresses` is, the one that
    served last among them.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        self.address, self._served_at = self._addresses[0], ""
        self._failures = 0

    def served(self) -> None:
        """The shard at `address` has taken the session."""
        self._failures, self._served_at = 0, self.address

    def redirected(self, address: str) -> None:
        """The shard at `address` has named another one."""
        self.address = address

    def failed(self) -> int:
        """Go on to the next address; how often all had failed before, since one has served."""
        known = self._known()
        rounds = self._failures // len(known)
        self._failures += 1
        # A stranger to whom we were sent is not kept.
        place = known.index(self.address) + 1 if self.address in known else 0
        self.address = known[place % len(known)]
        return rounds

    def _known(self) -> list[str]:
        """All addresses worth dialling."""
        others = [self._served_at] if self._served_at not in ("", *self._addresses) else []
        return [*self._addresses, *others]
