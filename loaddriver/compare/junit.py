"""A comparison as JUnit: a test case for each endpoint, each event and the voids."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from loaddriver.compare.comparison import Comparison
from loaddriver.compare.exact import suspicious, too_many
from loaddriver.compare.wording import event_sentence, sentence, void_sentence


def render_compare_junit(found: Comparison) -> bytes:
    """The file's content: regressions are failures, and what is not settled is skipped.

    A session that cannot be judged is an error.
    """
    suite = Xml.Element("testsuite", name=f"compare {found.profile}")
    for each in found.endpoints:
        _case(suite, found, each.name, each.verdict, sentence(each))
    for event in found.events:
        _case(suite, found, event.name, event.verdict, event_sentence(event, found.pairs))
    _voids(suite, found)
    cases = suite.findall("testcase")
    for tag, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(tag, str(sum(case.find(name) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    content: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _case(suite: Xml.Element, found: Comparison, name: str, verdict: str, text: str) -> None:
    case = Xml.SubElement(suite, "testcase", classname=f"compare.{found.profile}", name=name)
    if verdict == "regression":
        Xml.SubElement(case, "failure", message=text).text = "\n".join(found.why)
    elif verdict in ("not enough data", "not measured"):
        Xml.SubElement(case, "skipped", message=text)


def _voids(suite: Xml.Element, found: Comparison) -> None:
    name = "runs can be judged"
    case = Xml.SubElement(suite, "testcase", classname=f"compare.{found.profile}", name=name)
    reasons = "\n".join(found.voids.reasons)
    text = void_sentence(found.voids)
    if found.verdict == "too many voids":
        Xml.SubElement(case, "error", message=text).text = reasons
    elif too_many(found.voids):
        Xml.SubElement(case, "failure", message=text).text = reasons
    elif suspicious(found.voids):
        Xml.SubElement(case, "skipped", message=f"suspicious, and not proven: {text}")
    elif reasons:
        Xml.SubElement(case, "system-out").text = reasons
