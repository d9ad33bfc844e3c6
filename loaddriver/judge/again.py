"""Judging a finished run anew, by other limits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loaddriver.errors import ExitCode
from loaddriver.judge.gates import Limit, judge_gates
from loaddriver.judge.schema import Summary

_STANDS = ("error", "invalid")


def judge_again(summary: Summary, limits: Sequence[Limit]) -> Summary:
    """The summary with the verdict that `limits` give.

    A run that broke off or voided itself keeps that verdict: no limit makes its numbers good.
    """
    gates = judge_gates(msgspec.to_builtins(summary), limits)
    judged = msgspec.structs.replace(summary, gates=gates)
    if summary.verdict in _STANDS:
        return judged
    missed = [*summary.failures, *(gate.sentence for gate in gates if not gate.passed)]
    return msgspec.structs.replace(
        judged,
        verdict="fail" if missed else "pass",
        exit_code=int(ExitCode.GATE_MISSED if missed else ExitCode.PASS),
        why=missed or [f"Judged again: all {len(gates)} gates hold."],
    )
