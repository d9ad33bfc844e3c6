"""The verdict: one word, an exit code, and sentences that say why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loaddriver.errors import ExitCode
from loaddriver.judge.facts import RunFacts
from loaddriver.judge.gangs import Gangs
from loaddriver.judge.gates import GateResult, figure
from loaddriver.judge.percentiles import AtLeast, Quantile, Quantiles
from loaddriver.judge.schema import Audit, Pods
from loaddriver.record.rows import PodRow


@dataclass(frozen=True)
class Verdict:
    """`word` is pass, fail, invalid or error."""

    word: str
    exit_code: ExitCode
    why: tuple[str, ...]


def decide(
    facts: RunFacts,
    gates: Sequence[GateResult],
    doubts: Sequence[str],
    pods: Pods,
    latency: Quantiles,
) -> Verdict:
    """The gravest first: an accident, then doubts about the measurement, then missed gates."""
    missed = [*facts.failures, *(gate.sentence for gate in gates if not gate.passed)]
    if facts.accident is not None:
        return Verdict("error", facts.accident.exit_code, (facts.accident.sentence, *doubts))
    if doubts:
        return Verdict("invalid", ExitCode.INVALID_RUN, tuple(doubts))
    if not gates:
        return Verdict("invalid", ExitCode.INVALID_RUN, ("No gate was given: nothing was judged.",))
    if missed:
        return Verdict("fail", ExitCode.GATE_MISSED, tuple(missed))
    return Verdict("pass", ExitCode.PASS, (_all_well(len(gates), pods, latency),))


def doubts_about(
    facts: RunFacts, rows: Sequence[PodRow], pods: Pods, audit: Audit, gangs: Gangs
) -> tuple[str, ...]:
    """Why this measurement must not be believed, in sentences; none for a sound one."""
    return (*facts.doubts, *_lost_stamps(audit), *_strange_pods(facts, rows, pods, gangs))


def _lost_stamps(audit: Audit) -> Iterator[str]:
    lost = {
        "lines of the audit log could not be read": audit.undecodable,
        "lines of the audit log do not name their pod": audit.nameless,
        "times the audit log was cut back while it was read": audit.restarts,
        "pods were seen that the audit log does not have": audit.missed_pods,
        "bindings were seen that the audit log does not have": audit.missed_bindings,
    }
    for what, count in lost.items():
        if count:
            yield f"{figure(count)} {what}: stamps are missing from the result."


def _strange_pods(
    facts: RunFacts, rows: Sequence[PodRow], pods: Pods, gangs: Gangs
) -> Iterator[str]:
    classless = sum(not row.archetype for row in rows)
    if classless:
        yield f"{figure(classless)} pods of the load carry no archetype."
    if gangs.unplanned:
        yield f"{figure(gangs.unplanned)} groups of pods are in no plan."
    if pods.created < pods.planned and not facts.failures:
        missing = pods.planned - pods.created
        yield f"{figure(missing)} of {figure(pods.planned)} planned pods were never created."


def _all_well(gates: int, pods: Pods, latency: Quantiles) -> str:
    held = f"All {gates} gates hold" if gates > 1 else "The gate holds"
    return (
        f"{held}: {figure(pods.bound)} of {figure(pods.created)} pods were bound, "
        f"half of them within {_spoken(latency.p50)} and 99 % within {_spoken(latency.p99)}."
    )


def _spoken(quantile: Quantile) -> str:
    if isinstance(quantile, AtLeast):
        return f"more than {figure(quantile.at_least)} s"
    return "an unknown time" if quantile is None else f"{figure(quantile)} s"
