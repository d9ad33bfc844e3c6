"""The shard addresses that an operator dials, in turn."""

from __future__ import annotations

from collections.abc import Sequence


class ShardAddressList:
    """`address` is the one to dial now. After a failure it is the next of `addresses` and the one
    that served last.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        self.address, self._served_at = self._addresses[0], ""
        self._failures = 0

    def served(self) -> None:
        """Record that the shard at `address` accepted the session."""
        self._failures, self._served_at = 0, self.address

    def redirected(self, address: str) -> None:
        """Dial `address` next, to which a shard redirected."""
        self.address = address

    def failed(self) -> int:
        """Move to the next address; return how often all failed before, since one served."""
        known = self._known()
        rounds = self._failures // len(known)
        self._failures += 1
        # An address from a redirect is kept only once it served.
        place = known.index(self.address) + 1 if self.address in known else 0
        self.address = known[place % len(known)]
        return rounds

    def _known(self) -> list[str]:
        """All addresses to dial."""
        others = [self._served_at] if self._served_at not in ("", *self._addresses) else []
        return [*self._addresses, *others]
