"""The loader of scenarios: what it refuses, and that it says where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.files import CASES, ScenarioError, chosen, load, load_all

GOOD = """\
rule: Three pods run, whatever happens to them.
steps:
  - apply:
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: 3
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec:
              containers: [{name: web, image: x, resources: {requests: {cpu: 500m}}}]
  - expect:
      bound: [{pods: app=web, count: 3}]
      machines: [{exactly: 1, peak: 1}]
      quiet: 6
"""
STEP = "steps[1].expect"
NODE = "  - cordon: {running: app=web, named: it}\n  - expect: {nodes: {there: [it]}, quiet: 6}\n"


def problems(tmp_path: Path, text: str) -> str:
    """All that the loader says of a file with this text."""
    path = tmp_path / "group" / "case.yaml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load(path)
    return str(error.value)


def test_a_good_file_is_taken(tmp_path: Path) -> None:
    """It is known by the names of its file and folder."""
    path = tmp_path / "sizes" / "three-pods.yaml"
    path.parent.mkdir()
    path.write_text(GOOD + NODE)
    case = load(path)
    assert (case.name, case.group, len(case.scenario.steps)) == ("three-pods", "sizes", 4)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rule: Three", "rulle: Three", "rulle unknown key; did you mean rule?"),
        ("rule: Three pods run, whatever happens to them.", "rule: Runs.", "rule = 'Runs.'"),
        ("count: 3", "cuont: 3", f"{STEP}.bound[0].cuont unknown key; did you mean count?"),
        ("count: 3", "count: three", f"{STEP}.bound[0].count = 'three': expected int"),
        ("- expect:", "- expct:", "steps[1].expct unknown key; did you mean expect?"),
        ("exactly: 1, peak: 1", "", f"{STEP}.machines[0] has no number, so it can never fail"),
        ("exactly: 1, peak: 1", "atMost: 6", f"{STEP}.machines[0].atMost = 6 can hardly fail"),
        ("exactly: 1, peak: 1", "exactly: 2, peak: 1", "peak = 1 is below exactly = 2"),
        ("quiet: 6", "quiet: 2", f"{STEP}.quiet = 2: an autoscaler may take 5 s to act"),
        ("quiet: 6", "settle: 9", f"{STEP}.settle is when a quiet begins at the latest"),
        ("quiet: 6", "evicted: [{atMost: 3}]", "evicted[0].atMost = 3 can hardly fail"),
        ("count: 3", "count: 4", "count = 4 can never hold: the objects make at most 3"),
        ("bound: [{pods: app=web", "bound: [{pods: app=wbe", "no object applied so far has such"),
        ("bound:", "bond:", "did you mean bound?"),
        ("quiet: 6", "onePerNode: [app=web]", "onePerNode[0] = 'app=web': no pods of a DaemonSet"),
        (
            "quiet: 6",
            "spread: [{pods: app=web, by: zone, maxSkew: 3, domains: 2}]",
            "spread[0].maxSkew = 3 can never fail",
        ),
        ("quiet: 6", "nodes: {gone: [it]}", "nodes it: no step has given a Node this name"),
        ("metadata: {name: web}", "metadata: {}", "apply[0].metadata.name is missing"),
        ("kind: Deployment", "kinf: Deployment", "apply[0].kind is missing"),
        ("matchLabels: {app: web}", "matchLabels: {app: x}", "its own pods do not have that label"),
        ("cpu: 500m", "cpu: 500x", "requests.cpu = '500x' is not"),
        ("{name: web}", "{name: web, namespace: team}", "namespace = 'team': there is none; apply"),
        (
            "metadata: {labels: {app: web}}",
            "metadata: {labels: {app: web}, annotations: {bigfleet.lucy.sh/x: y}}",
            "belongs to one autoscaler; objects here are plain ones",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_fix(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """Unknown keys, wrong types, objects that are none, and what can never fail or never hold."""
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert found.startswith("group/case.yaml: ")
    assert said in found


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("  - scale: {object: Deployment/web, replicas: 0}\n", "do not end with an expectation"),
        ("  - expect: {}\n", "steps[2].expect expects nothing, so it can never fail"),
        (
            "  - rollOut: Deployment/web\n  - expect: {quiet: 6}\n",
            "steps[3].expect.rolledOut is missing: Deployment/web has a new revision",
        ),
        (
            "  - scale: {object: Deployment/wbe, replicas: 0}\n  - expect: {quiet: 6}\n",
            "steps[2].scale.object = 'Deployment/wbe': no step before has applied it; did you mean "
            "Deployment/web?",
        ),
        (
            "  - drain: {named: it}\n  - expect: {quiet: 6}\n",
            "steps[2].drain it: no step has named a Node so",
        ),
        (
            "  - cordon: {running: app=web, named: it}\n  - expect: {nodes: {there: [it]}}\n",
            "steps[3].expect.nodes.there can never fail right after the step that named it",
        ),
        (
            "  - scale: {object: Deployment/web, replicas: 4}\n    delete: [Deployment/web]\n"
            "  - expect: {quiet: 6}\n",
            "steps[2] has scale, delete: a step has exactly one key",
        ),
        (
            "  - expect: {pending: [{pods: app=web, count: 3}]}\n",
            "steps[2].expect.pending has no quiet beside it: every pod is pending at first",
        ),
    ],
)
def test_a_step_that_makes_no_sense_after_those_before_is_refused(
    tmp_path: Path, steps: str, said: str
) -> None:
    """Each step is read with what is known before it."""
    assert said in problems(tmp_path, GOOD + steps)


def test_all_mistakes_of_a_file_are_named_in_one_go(tmp_path: Path) -> None:
    """Fixing a file takes one round."""
    found = problems(tmp_path, GOOD.replace("count: 3", "count: 4").replace("quiet: 6", "quiet: 1"))
    assert len(found.splitlines()) == 2


def test_the_suite_is_large_and_every_rule_is_said_once() -> None:
    """At least 60 scenarios, and no two with the same sentence."""
    cases = load_all()
    assert len(cases) >= 60
    assert len({case.scenario.rule for case in cases}) == len(cases)


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    """A name alone says which one is meant."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.yaml").write_text(GOOD)
    with pytest.raises(ScenarioError, match=r"same\.yaml is in one, two"):
        load_all(tmp_path)


def test_only_those_that_are_asked_for_are_chosen() -> None:
    """By name, several with commas between; a name that nobody has is an error with a guess."""
    cases = load_all(CASES)
    names = [case.name for case in chosen(cases, "one-tiny-pod, drain")]
    assert sorted(names) == ["drain", "one-tiny-pod"]
    assert chosen(cases, "") == cases
    with pytest.raises(ScenarioError, match="did you mean one-tiny-pod"):
        chosen(cases, "one-tiny-pd")
