"""The lag of the harness's watches behind the API servers' logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaddriver.record.recorder import Observations


def receipt_lags_seconds(observed: Sequence[Observations]) -> list[float]:
    """Receipt by watch minus the log's timestamp, for every creation and binding in both.

    Negative if a watch was faster than the log's completion of the request.
    """
    return [lag / 1e6 for each in observed for lag in _lags_micros(each)]


def _lags_micros(observed: Observations) -> Iterator[int]:
    if observed.audit is None:
        return
    bound = {binding.uid: binding.at_micros for binding in reversed(observed.audit.bindings)}
    for uid, observation in observed.watch.pods.items():
        created = observed.audit.pods.get(uid)
        if created is not None:
            yield observation.created_micros - created.at_micros
        if observation.bound_micros is not None and uid in bound:
            yield observation.bound_micros - bound[uid]
