"""junit.xml: one test case per gate, for CI systems."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from loaddriver.judge.applicability import Inapplicable
from loaddriver.judge.gates import GateResult
from loaddriver.judge.schema import Summary

_OUTCOME = "the run can be judged"


def render_junit(summary: Summary) -> bytes:
    """The file's content. An invalid or aborted run is an additional test case with an error."""
    suite = Xml.Element(
        "testsuite",
        name=f"scaletest {summary.run.profile}",
        tests=str(len(summary.gates) + len(_skipped(summary)) + 1),
        failures=str(sum(not g.passed for g in summary.gates) + bool(summary.failures)),
        errors=str(int(_broken(summary))),
        skipped=str(len(_skipped(summary))),
        time=f"{summary.run.duration_seconds:.3f}",
    )
    _outcome_case(suite, summary)
    for gate in summary.gates:
        _gate_case(suite, summary, gate)
    for skipped in _skipped(summary):
        case = Xml.SubElement(suite, "testcase", classname=summary.run.profile, name=skipped.name)
        Xml.SubElement(case, "skipped", message=f"not applicable: {skipped.reason}")
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    content: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _outcome_case(suite: Xml.Element, summary: Summary) -> None:
    case = Xml.SubElement(suite, "testcase", classname=summary.run.profile, name=_OUTCOME)
    if _broken(summary):
        Xml.SubElement(case, "error", message=summary.verdict).text = "\n".join(summary.why)
    elif summary.failures:
        text = "\n".join(summary.failures)
        Xml.SubElement(case, "failure", message=summary.failures[0]).text = text
    if summary.diagnosis and summary.verdict != "pass":
        Xml.SubElement(case, "system-out").text = "\n".join(summary.diagnosis)


def _gate_case(suite: Xml.Element, summary: Summary, gate: GateResult) -> None:
    case = Xml.SubElement(suite, "testcase", classname=summary.run.profile, name=gate.name)
    if not gate.passed:
        failure = Xml.SubElement(case, "failure", message=gate.sentence)
        lines = [gate.sentence, f"metric: {gate.metric}", f"origin: {gate.origin}"]
        lines += [f"{each.name}: {each.note or each.value}" for each in gate.each]
        failure.text = "\n".join(lines)


def _skipped(summary: Summary) -> list[Inapplicable]:
    return summary.not_applicable.gates if summary.not_applicable else []


def _broken(summary: Summary) -> bool:
    return summary.verdict in ("error", "invalid")
