"""Says every half minute of a long run how much is done and how long is left."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support.durations import expected_seconds, file_of, known_seconds, remember

_INTERVAL_SECONDS = 30.0
# What is expected counts as much as this share of the run, seen.
_PRIOR_SHARE = 0.25


@dataclass
class Estimate:
    """What is left of a run, from what each file is expected to take. Pure.

    `tests` are the tests of each file, `expected` its seconds; `done` are the tests that ended.
    """

    tests: Mapping[str, int]
    expected: Mapping[str, float]
    workers: int = 1
    done: Counter[str] = field(default_factory=Counter)

    def share_done(self) -> float:
        """The share of the expected seconds that is done, 0 to 1."""
        return 1 - sum(self._left().values()) / (sum(self.expected.values()) or 1.0)

    def seconds_left(self, elapsed: float) -> float:
        """Until all workers are done, if the rest is as much slower or faster than expected as
        what was done in the `elapsed` seconds; at first, little is concluded from that, as long
        tests have not ended. A file is not divided between workers.
        """
        left, total = self._left(), sum(self.expected.values())
        done, prior = total - sum(left.values()), total * _PRIOR_SHARE
        pace = (elapsed * self.workers + prior) / (done + prior) if done else 1.0
        return pace * max(sum(left.values()) / self.workers, max(left.values(), default=0.0))

    def _left(self) -> dict[str, float]:
        return {
            name: seconds * (1 - self.done[name] / self.tests[name])
            for name, seconds in self.expected.items()
        }


class Progress:
    """The plugin, in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._estimate = Estimate({}, {})
        self._workers: set[str] = set()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._began = self._last = 0.0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All tests are known; not so in a run with workers."""
        self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """They are known to a worker."""
        self._workers.add(str(node))
        self._begin(ids)

    def _begin(self, ids: Sequence[str]) -> None:
        tests = Counter(file_of(each) for each in ids)
        expected = expected_seconds(known_seconds(self._config), tests)
        self._estimate = Estimate(tests, expected, max(1, len(self._workers)))
        self._began = self._last = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended."""
        name = file_of(report.nodeid)
        self._seconds[name] += report.duration
        self._estimate.done[name] += report.when == "teardown"
        now = time.monotonic()
        if now - self._last >= _INTERVAL_SECONDS:
            self._last = now
            self._say(now - self._began)

    def _say(self, elapsed: float) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            left = self._estimate.seconds_left(elapsed)
            reporter.write_line(
                f"\n{self._estimate.share_done():.0%} after {_minutes(elapsed)}, "
                f"about {_minutes(left)} left"
            )

    def pytest_sessionfinish(self) -> None:
        """Keep what files took that were run to their ends."""
        tests, done = self._estimate.tests, self._estimate.done
        whole = {n: s for n, s in self._seconds.items() if done[n] == tests.get(n)}
        remember(self._config, whole)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
