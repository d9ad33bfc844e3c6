"""Judging a finished run anew, by other limits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loaddriver.errors import ExitCode
from loaddriver.judge.bare import bare_section
from loaddriver.judge.gates import Limit, judge_gates
from loaddriver.judge.schema import Summary
from loaddriver.judge.selfaudit import disclosures
from loaddriver.judge.verdict import all_well


def judge_again(summary: Summary, limits: Sequence[Limit], bare: Summary | None = None) -> Summary:
    """The summary with the verdict that `limits` give; `bare` is the paired bare run's, if any.

    A run that broke off or voided itself keeps that verdict: no limit makes its numbers good.
    """
    gates = judge_gates(msgspec.to_builtins(summary), limits, bare and msgspec.to_builtins(bare))
    section = summary.bare
    if bare is not None:
        section = bare_section(summary.bind_latency_seconds, summary.hops_seconds, bare)
    judged = msgspec.structs.replace(summary, gates=gates, bare=section)
    if summary.verdict == "error" or summary.doubts:
        return judged
    latency = summary.bind_latency_seconds
    well = all_well(len(gates), summary.pods, summary.requests, latency)
    missed = [*summary.failures, *(gate.sentence for gate in gates if not gate.passed)]
    return msgspec.structs.replace(
        judged,
        verdict="fail" if missed else "pass",
        exit_code=int(ExitCode.GATE_MISSED if missed else ExitCode.PASS),
        why=[*(missed or [well]), *disclosures(summary.self_audit)],
    )
