"""Each expectation fails when what it says is not so: on made-up histories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.scenarios import judging
from tests.scenarios.judging import Facts, Message, MessagePattern
from tests.scenarios.records import Expect
from tests.scenarios.story_rig import ZONE, Story

DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def unmet(expect: dict[str, Any], story: Story, facts: Facts | None = None) -> list[str]:
    """What does not hold of an expectation as it stands in a file."""
    read = msgspec.convert(expect, Expect)
    eventual_problems = [
        each.text for each in judging.eventual_problems(read, story.seen, facts or Facts())
    ]
    return [*eventual_problems, *judging.final_problems(read, story.seen)]


@pytest.fixture
def story() -> Story:
    """Two pods of web on two Nodes of two zones."""
    story = Story()
    story.node("n1")
    story.node("n2", zone="zone-b")
    story.pod("w1", "n1")
    story.pod("w2", "n2")
    return story


BOUND = {"bound": [{"pods": "app=web", "count": 2}]}


def test_two_pods_on_two_nodes_are_bound_apart_and_spread(story: Story) -> None:
    """What holds is found to hold."""
    more = {
        "machines": [{"exactly": 2, "peak": 2, "more": 2}],
        "apart": [{"pods": "app=web", "by": "hostname"}],
        "spread": [{"pods": "app=web", "by": "zone", "maxSkew": 1, "domains": 2}],
        "where": [{"pods": "app=web", "labels": f"{ZONE}=zone-c", "never": True}],
        "onePerNode": ["app=web"],
        "evicted": [{"atMost": 0}],
    }
    assert unmet({**BOUND, **more}, story) == []


def test_bound_means_each_pod_on_a_node_that_is_there(story: Story) -> None:
    """Not one that waits, not one more, and not one whose Node has gone."""
    story.pod("w3")
    found = unmet(BOUND, story)
    assert "there are 3 pods app=web, not 2" in found
    assert any("1 of 3 pods app=web wait: w3" in text for text in found)
    story.pod("w3", gone=True)
    assert unmet(BOUND, story) == []
    story.node("n2", gone=True)
    assert any("wait: w2" in text for text in unmet(BOUND, story))


def test_pods_that_leave_or_have_ended_are_not_bound(story: Story) -> None:
    """A pod on its way out serves nobody."""
    story.pod("w2", "n2", deletionTimestamp="2026-01-01T00:00:00Z")
    assert unmet(BOUND, story) == ["there are 1 pods app=web, not 2"]
    story.pod("w1", "n1", phase="Succeeded")
    assert unmet({"finished": [{"pods": "app=web", "count": 1}]}, story) == []
    assert unmet({"finished": [{"pods": "app=web", "count": 2}]}, story) != []


def test_pending_means_without_a_node(story: Story) -> None:
    """A pod that was bound all the same is no pending one."""
    expect = {"pending": [{"pods": "app=web", "count": 1}]}
    assert unmet(expect, story) == ["0 pods app=web are pending, not 1"]
    story.pod("w3")
    assert unmet(expect, story) == []


def test_no_pods_means_that_all_are_gone(story: Story) -> None:
    """Those that are being deleted are still there."""
    story.pod("w1", "n1", gone=True)
    expect = {"noPods": [{"pods": "app=web"}]}
    assert unmet(expect, story) == ["1 pods app=web are left: w2"]
    story.pod("w2", "n2", gone=True)
    assert unmet(expect, story) == []


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ({"exactly": 1}, "not 1"),
        ({"atMost": 1}, "more than 1"),
        ({"atLeast": 3}, "fewer than 3"),
        ({"more": 0}, "+2 since before, not +0"),
        ({"peak": 2}, "there were 3 Nodes at a time, more than 2"),
        ({"peakMore": 2}, "there were 3 Nodes at a time, +3 since before, not +2"),
        ({"exactly": 2, "where": f"{ZONE}=zone-a"}, f"there are 1 Nodes with {ZONE}=zone-a"),
    ],
)
def test_machines_are_counted_now_and_at_their_most(
    story: Story, machines: dict[str, Any], said: str
) -> None:
    """A machine that came and went again was paid for."""
    story.node("n3")
    story.now = 5.0
    story.node("n3", gone=True)
    (text,) = unmet({"machines": [machines]}, story)
    assert said in text
    assert unmet({"machines": [{"exactly": 2, "peak": 3, "more": 2}]}, story) == []


def test_the_peak_begins_anew_with_each_step(story: Story) -> None:
    """What was there before a step is not held against it."""
    story.node("n3")
    story.now = 5.0
    story.node("n3", gone=True)
    story.now = story.seen.stepped_at = 6.0
    assert unmet({"machines": [{"peak": 2}]}, story) == []


def test_an_evicted_pod_counts_unless_a_step_did_it(story: Story) -> None:
    """Whoever evicts says so in the pod's condition; a drain by hand is nobody's fault."""
    expect = {"evicted": [{"atMost": 0}]}
    story.pod("w1", "n1", conditions=[DISRUPTED])
    (text,) = unmet(expect, story)
    assert "1 pods were evicted, not 0: w1 (EvictionByEvictionAPI)" in text
    assert unmet({"evicted": [{"atMost": 0, "pods": "app=db"}]}, story) == []
    story.seen.pods["w1"].by_hand = True
    assert unmet(expect, story) == []


def test_what_was_evicted_before_a_step_can_be_forgiven(story: Story) -> None:
    """With sinceStep only what came after it counts."""
    story.pod("w1", "n1", conditions=[DISRUPTED])
    story.now = story.seen.stepped_at = 6.0
    assert unmet({"evicted": [{"atMost": 0, "sinceStep": True}]}, story) == []
    story.pod("w2", "n2", conditions=[DISRUPTED])
    assert unmet({"evicted": [{"atMost": 0, "sinceStep": True}]}, story) != []


def test_a_pod_that_a_stranger_deletes_counts_as_evicted(story: Story) -> None:
    """Without an eviction no condition tells of it."""
    story.seen.see_deletion("scenario", "w1", "somebody")
    (text,) = unmet({"evicted": [{"atMost": 0}]}, story)
    assert "w1 (deleted by somebody)" in text


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"apart": [{"pods": "app=web", "by": "zone"}]}, "2 pods app=web share zone zone-a"),
        ({"together": [{"pods": "app=web", "by": "zone"}]}, "are in 2 of zone"),
        (
            {"together": [{"pods": "app=db", "by": "zone", "beside": "app=web"}]},
            "pods app=db are in 2 of zone",
        ),
        (
            {"spread": [{"pods": "app=web", "by": "zone", "maxSkew": 1, "domains": 3}]},
            "zone-a 2, zone-b 1, not in 3 of zone",
        ),
        (
            {"spread": [{"pods": "app=web", "by": "hostname", "maxSkew": 1, "domains": 2}]},
            "skewed by more than 1: n1 3, n2 1",
        ),
        ({"where": [{"pods": "app=web", "labels": f"{ZONE}=zone-a"}]}, "pod w2 is on n2"),
        (
            {"where": [{"pods": "app=web", "labels": f"{ZONE}=zone-b", "never": True}]},
            "pod w2 is on n2",
        ),
        ({"apart": [{"pods": "app=nobody", "by": "zone"}]}, "there is nothing to compare"),
        ({"where": [{"pods": "app=nobody", "labels": "a=b"}]}, "no pod app=nobody is bound"),
    ],
)
def test_places_are_compared_by_the_labels_of_nodes(
    story: Story, expect: dict[str, Any], said: str
) -> None:
    """And where there is nothing to compare, that is a failure, too."""
    story.pod("w3", "n1")
    story.pod("d1", "n1", app="db")
    if "hostname" in str(expect):
        story.pod("w4", "n1")
    found = unmet(expect, story)
    assert any(said in text for text in found), found


def test_a_daemon_set_runs_once_on_each_node_that_takes_it(story: Story) -> None:
    """None is missing, and none is there twice."""
    expect = {"onePerNode": ["app=agent"]}
    story.pod("a1", "n1", app="agent")
    assert unmet(expect, story) == ["Node n2 runs 0 pods app=agent, not one"]
    story.pod("a2", "n2", app="agent")
    assert unmet(expect, story) == []
    story.pod("a3", "n2", app="agent")
    assert unmet(expect, story) == ["Node n2 runs 2 pods app=agent, not one"]
    story.node("n2", gone=True)
    assert unmet(expect, story) == []
    story.pod("a4", app="agent")
    assert any("pods app=agent wait: a4" in text for text in unmet(expect, story))


def test_a_named_node_is_gone_or_there(story: Story) -> None:
    """By the name that a step gave it."""
    story.seen.named = {"first": story.seen.nodes["node-n1"]}
    assert unmet({"nodes": {"gone": ["first"]}}, story) == ["Node n1 (first) is still there"]
    story.node("n1", gone=True)
    assert unmet({"nodes": {"gone": ["first"]}}, story) == []
    assert unmet({"nodes": {"there": ["first"]}}, story) == ["Node n1 (first) is gone"]


SAYS = {"reports": [{"pods": "app=web", "reasonName": "nothing-fits", "mentions": ["2000"]}]}
WORDINGS = {"nothing-fits": MessagePattern("NotServed", "TooLarge: ", "NoMachine")}


def said_of(pod: str, *messages: Message) -> Facts:
    """The autoscaler says this of one pod."""
    return Facts({pod: messages}, WORDINGS)


EVENT = Message("event", "NotServed", "TooLarge: asks for 2000 CPU")
CONDITION = Message("condition", "NoMachine", "asks for 2000 CPU")


def test_the_autoscaler_must_say_it_in_an_event_and_in_its_condition(story: Story) -> None:
    """With the reasons that it calls it by, and mentioning what matters."""
    story.pod("w3")
    assert unmet(SAYS, story, said_of("w3", EVENT, CONDITION)) == []
    (text,) = unmet(SAYS, story, said_of("w3", EVENT))
    assert text == "w3: no condition NoMachine; there is none"
    for other in ("FailedScheduling", "TooLarge: asks for 2000"), ("NotServed", "asks for 2000"):
        (text,) = unmet(SAYS, story, said_of("w3", Message("event", *other), CONDITION))
        assert text.startswith(f"w3: no Event NotServed (TooLarge: ); there is {other[0]}")
    vague = Message("event", "NotServed", "TooLarge: does not fit")
    (text,) = unmet(SAYS, story, said_of("w3", vague, CONDITION))
    assert text.startswith("w3: no Event NotServed (TooLarge: ) mentions '2000'")


def test_nothing_said_about_nobody_is_a_failure(story: Story) -> None:
    """All pods are bound: whoever expects an explanation expected one of them to wait."""
    assert unmet(SAYS, story, said_of("w3")) == ["no pod app=web waits, so there is no explanation"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"observedGeneration": 1}, "has not seen the newest revision"),
        ({"updatedReplicas": 1}, "1 of 2 pods are of the newest revision, 1 older"),
        ({"replicas": 3}, "2 of 2 pods are of the newest revision, 1 older"),
        ({"readyReplicas": 1}, "2 of 2 pods are of the newest revision"),
    ],
)
def test_a_roll_out_has_ended_when_only_new_pods_are_left_and_ready(
    story: Story, status: dict[str, int], said: str
) -> None:
    """As kubectl rollout status has it."""
    done = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    workload = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": done}
    expect = {"rolledOut": ["Deployment/web"]}
    assert unmet(expect, story, Facts(workloads={"Deployment/web": workload})) == []
    workload = {**workload, "status": {**done, **status}}
    found = unmet(expect, story, Facts(workloads={"Deployment/web": workload}))
    assert any(said in text for text in found), found


def test_quiet_ends_with_the_first_thing_that_happens(story: Story) -> None:
    """A Node that comes, goes or is cordoned, a pod that is evicted; what is older is not meant."""
    story.cordon("n2")
    story.pod("w2", "n2", conditions=[DISRUPTED])
    story.now = 10.0
    assert list(judging.disturbances(story.seen, 10.0)) == []
    story.now = 11.0
    story.node("n3")
    story.cordon("n1")
    story.pod("w1", "n1", conditions=[DISRUPTED])
    story.node("n2", gone=True)
    assert sorted(text.split(" at ")[0] for text in judging.disturbances(story.seen, 10.0)) == [
        "Node n1 was cordoned",
        "Node n2 went",
        "Node n3 came",
        "pod w1 was evicted",
    ]


def test_what_went_while_nobody_looked_is_seen_as_gone(story: Story) -> None:
    """After a watch had to begin anew."""
    story.seen.relisted(story.seen.pods, [story.seen.pods["w1"].latest])
    assert unmet(BOUND, story) == ["there are 1 pods app=web, not 2"]
