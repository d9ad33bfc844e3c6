"""Says on CapacityRequests that machines are missing for them, as the shard sees it.

A need that is short does not say whose pods wait: that is kube-scheduler's choice. So of each size
as many requests say so as pods are short, the newest, which are the likeliest to wait. Of a size
that nothing in the fleet can hold, all do.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from bigfleet.api.codec import sizes_from_wire
from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import APPLY_PATCH, NOT_FOUND, ApiError, KubeClient
from bigfleet.api.marks import CAPACITY_SHORT, INVALID, NO_MATCHING_SUPPLY
from bigfleet.api.v1alpha1.shard_pb2 import DemandStatus, NeedStatus
from bigfleet.controllers.operator.acknowledge import rfc3339
from bigfleet.controllers.operator.aggregate import RowKey
from bigfleet.controllers.operator.ledger import Condition, Key, Ledger
from bigfleet.controllers.work_queue import Pace, WorkQueue
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import Size
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 8
_LOOK_SECONDS = 1.0
# The reason of a condition: its shard cannot take the need, and says why.
NOT_TAKEN = "Rejected"
# What changes in a message alone, such as a count, is not worth a write each time.
_SAY_ANEW_SECONDS = 60.0
# A person reads a few, and whoever asks for the same thing knows by any of them.
_MOST_OF_A_NEED = 200
# Of all requests that make no sense: more at once are one fault, repeated.
_MOST_UNUSABLE = 1000
_MOST_MESSAGE = 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_APPLY = {"fieldManager": "bigfleet-operator", "force": "true"}


class _Short(NamedTuple):
    """One need of which pods are short: how many of which size. No sizes means all pods."""

    row: RowKey
    sizes: tuple[Size, ...]
    reason: str
    message: str


class _Saying(NamedTuple):
    """What a request's condition is to say."""

    status: str
    reason: str
    message: str


class _Withheld(NamedTuple):
    """What requests are to say that the version `in_force` does not contain."""

    saying: _Saying
    in_force: int


class _Written(NamedTuple):
    """What we wrote, when, and on which request of that name."""

    condition: Condition
    at: float
    created: float


_MET = _Saying("False", "Satisfied", "machines enough are there, or on their way")


class ShortConditions:
    """Writes at most `per_second` conditions a second, none of them twice.

    Until a shard has said what is short, what was written before stands. What it cannot take at all
    is short, too, and so is what it is not told. `now` is the time in seconds since 1970.
    """

    def __init__(
        self,
        client: KubeClient,
        ledger: Ledger,
        per_second: float,
        now: Callable[[], float],
    ) -> None:
        self._client, self._ledger, self._now = client, ledger, now
        self._short: Sequence[_Short] | None = None
        self._not_taken: Sequence[_Short] = []
        self._withheld: _Withheld | None = None
        self._wanted: dict[Key, _Saying] = {}
        # What we wrote: ahead of what the ledger's watch has shown.
        self._written: dict[Key, _Written] = {}
        self._news = asyncio.Event()
        self._computed: tuple[int, float] = (-1, 0.0)
        self._unusable_version = 0
        self._pace = Pace(per_second)
        self._queue: WorkQueue[Key] = WorkQueue(self._write, _CONCURRENCY, self._refused)

    def refuse(self, refused: Mapping[RowKey, str]) -> None:
        """These rows are all that the shard cannot take of the last roll-up, and why."""
        found = [_Short(row, (), NOT_TAKEN, why[:_MOST_MESSAGE]) for row, why in refused.items()]
        if found != self._not_taken:
            self._not_taken = found
            self._news.set()

    def withhold(self, reason: str, why: str, in_force: int) -> None:
        """Nothing of the last roll-up is in force, for this reason; "" once one is. That of which
        the shard knows is the `in_force` version of the aggregate.
        """
        said = _Saying("True", reason, why[:_MOST_MESSAGE])
        found = _Withheld(said, in_force) if reason else None
        if found != self._withheld:
            self._withheld = found
            self._news.set()

    def offer(self, status: DemandStatus) -> None:
        """This is all that is short now."""
        try:
            self._short = [_short(each) for each in status.short]
        except InvalidInput as error:
            _LOG.error(
                "what the shard says of our demand makes no sense, and is ignored: %s", error
            )
            return
        self._news.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._look())

    async def _look(self) -> None:
        """Again when requests have come or gone: the newest are others then."""
        while True:
            news = self._news.is_set()
            self._news.clear()
            if news or self._is_stale():
                self._compute()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _is_stale(self) -> bool:
        version, at = self._computed
        if self._ledger.unusable_version != self._unusable_version:
            return True
        if not (self._short or self._not_taken or self._withheld or self._ledger.unusable):
            return False
        elapsed = self._now() - at
        return version != self._ledger.aggregate.version or elapsed >= _SAY_ANEW_SECONDS

    def _compute(self) -> None:
        self._computed = self._ledger.aggregate.version, self._now()
        self._unusable_version = self._ledger.unusable_version
        created = self._ledger.created
        self._written = {k: w for k, w in self._written.items() if created.get(k) == w.created}
        wanted = self._sayings([*(self._short or ()), *self._not_taken])
        wanted.update(self._never_asked())
        for key in self._marked() if self._short is not None else ():
            wanted.setdefault(key, _MET)
        self._wanted = {key: saying for key, saying in wanted.items() if self._is_news(key, saying)}
        for key in self._wanted:
            self._queue.add(key)

    def _sayings(self, short: Iterable[_Short]) -> dict[Key, _Saying]:
        """What every request of a short need is to say; nothing of the others."""
        wanted: dict[Key, _Saying] = {}
        for each in short:
            saying = _Saying("True", each.reason, each.message)
            for key in self._whom(each):
                wanted[key] = saying
        return wanted

    def _never_asked(self) -> Iterator[tuple[Key, _Saying]]:
        """What requests are to say of which the shard does not know."""
        if self._withheld is not None:
            for key in self._ledger.newer_than(self._withheld.in_force)[:_MOST_OF_A_NEED]:
                yield key, self._withheld.saying
        for key, why in islice(self._ledger.unusable.items(), _MOST_UNUSABLE):
            yield key, _Saying("True", INVALID, why[:_MOST_MESSAGE])

    def _whom(self, short: _Short) -> Iterable[Key]:
        aggregate = self._ledger.aggregate
        if not short.sizes:
            yield from (aggregate.requests_of(short.row, None) or ())[:_MOST_OF_A_NEED]
            return
        most = max(1, _MOST_OF_A_NEED // len(short.sizes))
        for amounts, pods in short.sizes:
            keys = aggregate.requests_of(short.row, amounts)
            if keys is None:
                # It was withdrawn, or is counted with another size by now: the shard will say.
                yield from (k for k in self._counted() if aggregate.row_of(k) == short.row)
            else:
                yield from keys[: most if short.reason == NO_MATCHING_SUPPLY else min(most, pods)]

    def _marked(self) -> list[Key]:
        """The requests that say that they are short."""
        said = ((key, self._said(key)) for key in {*self._ledger.short, *self._written})
        known = self._ledger.created
        return [k for k, c in said if c is not None and c.status == "True" and k in known]

    def _counted(self) -> Iterator[Key]:
        """Those of them that ask for something."""
        return (key for key in self._marked() if key in self._ledger)

    def _said(self, key: Key) -> Condition | None:
        written = self._written.get(key)
        if written is not None and written.created == self._ledger.created.get(key):
            return written.condition
        return self._ledger.short.get(key)

    def _is_news(self, key: Key, saying: _Saying) -> bool:
        said = self._said(key)
        if said is None or (said.status, said.reason) != (saying.status, saying.reason):
            return True
        written = self._written.get(key)
        silent = self._now() - (written.at if written else 0.0)
        return said.message != saying.message and silent >= _SAY_ANEW_SECONDS

    async def _write(self, key: Key) -> None:
        await self._pace.turn()
        saying = self._wanted.get(key)
        known = key in self._ledger.created
        if saying is None or not known or not self._is_news(key, saying):
            self._wanted.pop(key, None)
            return
        said = self._said(key)
        changed = said is None or said.status != saying.status
        since = said.last_transition_time if said and not changed else rfc3339(self._now())
        condition = {"type": CAPACITY_SHORT, **saying._asdict(), "lastTransitionTime": since}
        head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest"}
        body = {**head, "metadata": {"name": key.name}, "status": {"conditions": [condition]}}
        path = f"{GROUP_VERSION}/namespaces/{key.namespace}/capacityrequests/{key.name}/status"
        await self._client.patch(path, body, APPLY_PATCH, _APPLY)
        written = Condition(CAPACITY_SHORT, *saying, last_transition_time=since)
        self._written[key] = _Written(written, self._now(), self._ledger.created.get(key, 0.0))
        metrics.operator_short_conditions.labels(saying.status).inc()

    def _refused(self, key: Key, error: ApiError) -> None:
        self._wanted.pop(key, None)
        if error.status != NOT_FOUND:
            _LOG.error("cannot say that %s/%s is short: %s", key.namespace, key.name, error)


def _short(status: NeedStatus) -> _Short:
    """InvalidInput when the shard's words make no sense."""
    row = RowKey(status.profile_fingerprint, status.group)
    reason = status.reason if _REASON.fullmatch(status.reason) else "Short"
    sizes = sizes_from_wire(status.sizes, "sizes") if status.HasField("sizes") else ()
    return _Short(row, sizes, reason[:_MOST_MESSAGE], status.message[:_MOST_MESSAGE])
