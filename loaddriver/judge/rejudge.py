"""Judges a finished run again, by other limits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loaddriver.judge.applicability import applicable, not_applicable
from loaddriver.judge.bare import bare_section
from loaddriver.judge.gates import GateSpec, judge_gates
from loaddriver.judge.overload import Attribution
from loaddriver.judge.schema import Summary
from loaddriver.judge.self_checks import disclosures
from loaddriver.judge.verdict import decide
from loaddriver.record.provenance import provider_of


def rejudge(summary: Summary, limits: Sequence[GateSpec], bare: Summary | None = None) -> Summary:
    """The summary with the verdict by `limits`; `bare` is the paired bare run's, if any.

    An aborted or invalid run keeps its verdict.
    """
    system = "" if summary.run.bare else summary.run.system
    logged = summary.audit.available
    provider = provider_of(summary.provenance)
    own = applicable(limits, system, logged=logged, provider=provider)
    gates = judge_gates(msgspec.to_builtins(summary), own, bare and msgspec.to_builtins(bare))
    section = summary.bare
    if bare is not None:
        section = bare_section(summary, bare)
    judged = msgspec.structs.replace(
        summary,
        gates=gates,
        bare=section,
        not_applicable=not_applicable(limits, system, logged=logged, provider=provider),
    )
    if summary.verdict == "error" or summary.invalid_reasons:
        return judged
    verdict = decide(
        None,
        gates,
        Attribution(invalid=(), failures=tuple(summary.failures)),
        summary.pods,
        summary.requests,
        summary.due_to_bind_seconds,
        tuple(disclosures(summary.self_checks)),
        baseline=summary.run.bare,
    )
    return msgspec.structs.replace(
        judged,
        verdict=verdict.word,
        exit_code=int(verdict.exit_code),
        why=list(verdict.why),
    )
