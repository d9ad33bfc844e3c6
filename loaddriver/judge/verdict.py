"""The verdict: one word, an exit code, and the reasons as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loaddriver.errors import ExitCode
from loaddriver.judge.facts import InvalidReason, RunFacts, RunFailure
from loaddriver.judge.gangs import Gangs
from loaddriver.judge.gates import GateResult, format_number
from loaddriver.judge.overload import Attribution, attribute
from loaddriver.judge.percentiles import AtLeast, Quantile, Quantiles
from loaddriver.judge.schema import Pods, Requests, SelfCheck
from loaddriver.judge.self_checks import exceeded_limits, unmeasured
from loaddriver.record.rows import PodRow


@dataclass(frozen=True)
class Verdict:
    """`word` is pass, fail, invalid or error."""

    word: str
    exit_code: ExitCode
    why: tuple[str, ...]


def decide(
    run_failure: RunFailure | None,
    gates: Sequence[GateResult],
    attribution: Attribution,
    pods: Pods,
    requests: Requests | None,
    latency: Quantiles,
    disclosed: Sequence[str] = (),
    *,
    baseline: bool = False,
) -> Verdict:
    """Precedence: run failure, invalid measurement, failures of the system and missed gates.

    `disclosed` remarks accompany a verdict of a valid measurement. A `baseline` (a bare run) needs
    no gates of its own: its pair's ratios are judged by it.
    """
    invalid_reasons = attribution.invalid
    missed = [*attribution.failures, *(gate.sentence for gate in gates if not gate.passed)]
    if run_failure is not None:
        return Verdict("error", run_failure.exit_code, (run_failure.sentence, *invalid_reasons))
    if invalid_reasons:
        return Verdict("invalid", ExitCode.INVALID_RUN, tuple(invalid_reasons))
    if not gates and not baseline:
        sentence = "No gates were given that apply to this run: nothing was judged."
        return Verdict("invalid", ExitCode.INVALID_RUN, (sentence,))
    if missed:
        return Verdict("fail", ExitCode.GATE_MISSED, (*missed, *disclosed))
    sentence = pass_sentence(len(gates), pods, requests, latency)
    return Verdict("pass", ExitCode.PASS, (sentence, *disclosed))


def attribution_of(
    facts: RunFacts,
    rows: Sequence[PodRow],
    pods: Pods,
    requests: Requests | None,
    checks: Mapping[str, SelfCheck],
    gangs: Gangs,
) -> Attribution:
    """Why the measurement is invalid, and the failures of the system under test, as sentences.

    In a run that ended early nothing is attributed to the system: its failure has a cause.
    """
    broke_off = facts.run_failure is not None
    reasons = [
        *facts.invalid_reasons,
        *exceeded_limits(checks),
        *(() if broke_off else unmeasured(checks)),
        *_unplanned_pods(rows, gangs),
        *(() if facts.failures or broke_off else _never_created(pods, requests)),
    ]
    found = attribute(reasons, None if broke_off else facts.harness_health)
    return Attribution(found.invalid, (*facts.failures, *found.failures))


def _unplanned_pods(rows: Sequence[PodRow], gangs: Gangs) -> Iterator[InvalidReason]:
    without_archetype = sum(not row.archetype for row in rows)
    if without_archetype:
        yield InvalidReason(
            f"{format_number(without_archetype)} pods of the load have no archetype."
        )
    if gangs.unplanned:
        yield InvalidReason(f"{format_number(gangs.unplanned)} groups of pods are not in the plan.")


def _never_created(pods: Pods, requests: Requests | None) -> Iterator[InvalidReason]:
    for what, part in (("pods", pods), ("requests", requests)):
        if part is not None and part.created < part.planned:
            missing = (
                f"{format_number(part.planned - part.created)} of {format_number(part.planned)}"
            )
            yield InvalidReason(f"{missing} planned {what} were never created.", overload=True)


def pass_sentence(gates: int, pods: Pods, requests: Requests | None, latency: Quantiles) -> str:
    """The sentence for a run whose gates all hold, with its main numbers."""
    held = f"All {gates} gates hold" if gates > 1 else "The gate holds"
    if not gates:
        held = "No gate of its own"
    done, of, what = pods.bound, pods.created, "pods were bound"
    if requests is not None and not pods.created:
        done, of, what = requests.acknowledged, requests.created, "requests were acknowledged"
        latency = requests.due_to_ack_seconds
    return (
        f"{held}: {format_number(done)} of {format_number(of)} {what}, {_median_and_tail(latency)}."
    )


def _median_and_tail(latency: Quantiles) -> str:
    half = f"half of them within {_spoken(latency.p50)} of their due time"
    if isinstance(latency.p99, AtLeast) and latency.p99.required_sample_size:
        return f"{half} and the slowest within {_spoken(latency.max)}"
    return f"{half} and 99 % within {_spoken(latency.p99)}"


def _spoken(quantile: Quantile) -> str:
    if isinstance(quantile, AtLeast):
        return f"at least {format_number(quantile.at_least)} s"
    return "an unknown time" if quantile is None else f"{format_number(quantile)} s"
