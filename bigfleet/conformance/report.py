"""Results as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as Xml

from bigfleet.conformance.check import CheckOutcome, Result

_SYMBOLS = {CheckOutcome.PASSED: "pass", CheckOutcome.FAILED: "FAIL", CheckOutcome.SKIPPED: "SKIP"}


def line(result: Result) -> str:
    """A result as text, with the rule and the observation if it failed."""
    words = f"{_SYMBOLS[result.outcome]}  {result.check.name}"
    if result.outcome is CheckOutcome.PASSED:
        return f"{words}: {result.observed}"
    if result.outcome is CheckOutcome.SKIPPED:
        return f"{words}: skipped: {result.observed}"
    return f"{words}\n      rule: {result.check.rule}\n      observed: {result.observed}"


def verdict(results: Sequence[Result], target: str) -> str:
    """The verdict and the number of results of each outcome."""
    counts = {outcome: sum(r.outcome is outcome for r in results) for outcome in CheckOutcome}
    verdict_text = "conforms" if conforms(results) else "does not conform"
    return (
        f"The provider at {target} {verdict_text}: {counts[CheckOutcome.PASSED]} checks passed, "
        f"{counts[CheckOutcome.FAILED]} failed, {counts[CheckOutcome.SKIPPED]} skipped."
    )


def conforms(results: Sequence[Result]) -> bool:
    """Whether no check failed and at least one passed."""
    outcomes = {result.outcome for result in results}
    return CheckOutcome.FAILED not in outcomes and CheckOutcome.PASSED in outcomes


def leftover_line(machines: Mapping[str, str]) -> str:
    """A line about machines that were created and not deleted, with their states."""
    machines_text = ", ".join(f"{machine} ({state})" for machine, state in sorted(machines.items()))
    return f"Not deleted and possibly still billed: {machines_text}. Delete them manually."


def as_json(results: Sequence[Result], target: str, leftover_machines: Mapping[str, str]) -> str:
    """All results as JSON; the keys are a public interface."""
    checks = [
        {
            "name": result.check.name,
            "rule": result.check.rule,
            "outcome": result.outcome.value,
            "observed": result.observed,
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    whole = {
        "target": target,
        "conforms": conforms(results),
        "leftover_machines": dict(leftover_machines),
    }
    return json.dumps({**whole, "checks": checks}, indent=2)


def as_junit(results: Sequence[Result], target: str) -> bytes:
    """One test case per check."""
    suite = Xml.Element(
        "testsuite",
        name=f"provider conformance of {target}",
        tests=str(len(results)),
        failures=str(sum(r.outcome is CheckOutcome.FAILED for r in results)),
        skipped=str(sum(r.outcome is CheckOutcome.SKIPPED for r in results)),
        time=f"{sum(r.seconds for r in results):.3f}",
    )
    for result in results:
        group, _, name = result.check.name.partition("/")
        seconds = f"{result.seconds:.3f}"
        case = Xml.SubElement(suite, "testcase", classname=group, name=name, time=seconds)
        if result.outcome is CheckOutcome.FAILED:
            text = f"rule: {result.check.rule}\nobserved: {result.observed}"
            Xml.SubElement(case, "failure", message=result.observed).text = text
        elif result.outcome is CheckOutcome.SKIPPED:
            Xml.SubElement(case, "skipped", message=result.observed)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    content: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return content
