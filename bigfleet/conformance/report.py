"""The results for people, for programs and for CI systems."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as Xml

from bigfleet.conformance.judging import Outcome, Result

_WORDS = {Outcome.PASSED: "pass", Outcome.FAILED: "FAIL", Outcome.NOT_CHECKED: "----"}


def line(result: Result) -> str:
    """A result for people: one line, and for a broken rule the rule and what was seen."""
    words = f"{_WORDS[result.outcome]}  {result.check.name}"
    if result.outcome is Outcome.PASSED:
        return f"{words}: {result.seen}"
    if result.outcome is Outcome.NOT_CHECKED:
        return f"{words}: not checked: {result.seen}"
    return f"{words}\n      the rule: {result.check.rule}\n      was seen: {result.seen}"


def verdict(results: Sequence[Result], target: str) -> str:
    """The last line."""
    counts = {outcome: sum(r.outcome is outcome for r in results) for outcome in Outcome}
    said = "keeps the contract" if conforms(results) else "does not keep the contract"
    return (
        f"The provider at {target} {said}: {counts[Outcome.PASSED]} checks passed, "
        f"{counts[Outcome.FAILED]} failed, {counts[Outcome.NOT_CHECKED]} could not be checked."
    )


def conforms(results: Sequence[Result]) -> bool:
    """Whether no rule was seen broken, and at least one was seen kept."""
    outcomes = {result.outcome for result in results}
    return Outcome.FAILED not in outcomes and Outcome.PASSED in outcomes


def left(machines: Mapping[str, str]) -> str:
    """A line about machines that were bought and not given back, by their states."""
    named = ", ".join(f"{machine} ({state})" for machine, state in sorted(machines.items()))
    return f"Left behind, and perhaps paid for: {named}. Give them back by hand."


def as_json(results: Sequence[Result], target: str, left_behind: Mapping[str, str]) -> str:
    """All that is known, under names that stay."""
    checks = [
        {
            "name": result.check.name,
            "rule": result.check.rule,
            "outcome": result.outcome.value,
            "seen": result.seen,
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    whole = {"target": target, "conforms": conforms(results), "left_behind": dict(left_behind)}
    return json.dumps({**whole, "checks": checks}, indent=2)


def as_junit(results: Sequence[Result], target: str) -> bytes:
    """One test case per check."""
    suite = Xml.Element(
        "testsuite",
        name=f"provider conformance of {target}",
        tests=str(len(results)),
        failures=str(sum(r.outcome is Outcome.FAILED for r in results)),
        skipped=str(sum(r.outcome is Outcome.NOT_CHECKED for r in results)),
        time=f"{sum(r.seconds for r in results):.3f}",
    )
    for result in results:
        group, _, name = result.check.name.partition("/")
        seconds = f"{result.seconds:.3f}"
        case = Xml.SubElement(suite, "testcase", classname=group, name=name, time=seconds)
        if result.outcome is Outcome.FAILED:
            text = f"the rule: {result.check.rule}\nwas seen: {result.seen}"
            Xml.SubElement(case, "failure", message=result.seen).text = text
        elif result.outcome is Outcome.NOT_CHECKED:
            Xml.SubElement(case, "skipped", message=result.seen)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    content: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return content
