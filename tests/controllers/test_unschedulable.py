"""Which unschedulable pods request an additional machine, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.pod_controller.unschedulable import (
    DEFER_SECONDS,
    GANG_TIMEOUT_SECONDS,
    MAX_ADDITIONAL_PER_POD,
    MAX_ASKING_PER_GROUP,
    MAX_REQUESTS_PER_PASS,
    NO_ROOM_DELAY_SECONDS,
    UNSCHEDULABLE_DELAY_SECONDS,
    AdditionalRequest,
    Outlook,
    UnschedulablePods,
)

Rules = UnschedulablePods[str]


def _nothing_else(_: str) -> Outlook:
    return Outlook(should_wait=False)


def _no_room(_: str) -> bool:
    return False


def _watched(
    rules: Rules,
    since: int,
    until: int,
    outlook: Callable[[str], Outlook] = _nothing_else,
    has_room: Callable[[str], bool] = lambda _: True,
) -> list[tuple[int, AdditionalRequest[str]]]:
    """The requests by second, with one pass per second."""
    return [
        (now, ask)
        for now in range(since, until + 1)
        for ask in rules.due_requests(now, outlook, has_room)
    ]


def _rules(*pods: str, group: str = "g") -> Rules:
    """Pods of one group, the first the oldest."""
    rules = Rules()
    for age, pod in enumerate(pods):
        rules.observe(pod, group, f"{age:03}", 0.0)
    return rules


def test_a_pod_requests_after_the_delay_and_then_at_growing_intervals_three_times_in_all() -> None:
    moments = [(at, ask.number) for at, ask in _watched(_rules("a"), 0, 3_600)]
    assert moments == [(15, 1), (75, 2), (255, 3)]


def test_while_its_need_is_short_or_a_machine_is_coming_a_pod_is_patient() -> None:
    rules = _rules("a")
    assert _watched(rules, 0, 600, lambda _: Outlook(should_wait=True)) == []
    assert [at for at, _ in _watched(rules, 601, 620)] == [616]


def test_a_reason_to_wait_that_is_gone_may_have_been_there_until_now() -> None:
    """Passes are some time apart, and kube-scheduler takes its time once a machine has come."""
    rules = _rules("a")
    rules.due_requests(0, lambda _: Outlook(should_wait=True), lambda _: False)
    asks = [at for at in range(4, 20, 4) for _ in rules.due_requests(at, _nothing_else, _no_room)]
    assert asks == [12]


def test_a_pod_that_no_node_has_room_for_requests_after_five_seconds() -> None:
    """Not sooner: what its need acquires is not known yet."""
    asks = _watched(_rules("a", "b"), 0, 14, has_room=lambda pod: pod == "b")
    assert [(at, ask.pod) for at, ask in asks] == [(NO_ROOM_DELAY_SECONDS, "a")]


def test_a_pod_that_still_has_room_on_no_node_requests_again_after_half_a_minute() -> None:
    """Others have filled its machine, or it is late."""
    rules = _rules("a")
    asks = _watched(rules, 0, 40, has_room=lambda _: False)
    assert [at for at, _ in asks] == [5, 35]
    later = _watched(rules, 41, 1_000, has_room=lambda _: False)
    assert [(at, ask.number) for at, ask in later] == [(65, 3)]


def test_a_pod_whose_machine_came_and_was_filled_requests_again_after_five_seconds() -> None:
    """It need not wait for a machine that has come already; the next one may still be coming."""
    rules, coming = _rules("p"), lambda _: Outlook(should_wait=True)
    assert [at for at, _ in _watched(rules, 1, 8, has_room=_no_room)] == [6]
    assert _watched(rules, 9, 12, coming, _no_room) == []
    assert [at for at, _ in _watched(rules, 13, 60, has_room=_no_room)] == [18, 48]


def test_a_pod_that_a_machine_in_an_open_domain_alone_helps_waits_for_half_a_minute() -> None:
    """The machine that came may be empty, in a domain that has been closed since."""
    rules, here = _rules("p"), lambda _: Outlook(should_wait=False, any_domain=False)
    coming = lambda _: Outlook(should_wait=True, any_domain=False)  # noqa: E731
    assert [at for at, _ in _watched(rules, 1, 8, here, _no_room)] == [6]
    assert _watched(rules, 9, 12, coming, _no_room) == []
    assert [at for at, _ in _watched(rules, 13, 60, here, _no_room)] == [43]


def test_a_pod_requests_its_third_machine_anew_once_another_that_requested_one_is_bound() -> None:
    """Of pods that spread over hosts a machine may take two, however many requested it: the others
    waited for good once they had requested three.
    """
    rules, nowhere = _rules("a", "b", "c"), lambda _: False
    _watched(rules, 0, 600, has_room=nowhere)
    assert {rules.asked(pod) for pod in "abc"} == {MAX_ADDITIONAL_PER_POD}
    rules.forget("a", bound=True)
    asks = _watched(rules, 601, 1_000, has_room=nowhere)
    assert [(ask.pod, ask.number) for _, ask in asks] == [("b", 3), ("c", 3)]
    rules.forget("b")  # deleted: that is no sign
    assert _watched(rules, 1_001, 2_000, has_room=nowhere) == []


def test_the_oldest_of_an_unplaced_gang_that_no_node_has_room_for_waits_for_the_others() -> None:
    asks = _watched(
        _rules("a"),
        0,
        60,
        lambda _: Outlook(should_wait=False, gang_unplaced=True),
        lambda _: False,
    )
    assert [at for at, _ in asks] == [GANG_TIMEOUT_SECONDS + NO_ROOM_DELAY_SECONDS]


def test_waiting_for_a_machine_that_was_asked_for_does_not_count_for_the_next() -> None:
    """It comes after two minutes, and others fill it: 60 seconds of that are waited, not 180."""
    rules = _rules("a")
    _watched(rules, 0, 15)
    assert _watched(rules, 16, 136, lambda _: Outlook(should_wait=True)) == []
    assert [at for at, _ in _watched(rules, 137, 300)] == [197]


def test_the_delay_restarts_after_a_machine_has_joined() -> None:
    """kube-scheduler needs a moment to retry its backoff queue."""
    rules = _rules("a")
    _watched(rules, 0, 70)
    _watched(rules, 71, 72, lambda _: Outlook(should_wait=True))
    assert [at for at, _ in _watched(rules, 73, 90)] == [88]


def test_of_equivalent_pods_ten_request_the_oldest_first_and_others_only_in_their_place() -> None:
    rules = _rules(*(f"p{number}" for number in range(10_000)))
    asks = _watched(rules, 0, 3_600)
    assert {ask.pod for _, ask in asks} == {f"p{number}" for number in range(10)}
    assert len(asks) == MAX_ASKING_PER_GROUP * MAX_ADDITIONAL_PER_POD
    assert rules.forget("p3") == MAX_ADDITIONAL_PER_POD
    assert {ask.pod for _, ask in _watched(rules, 3_601, 7_200)} == {"p10"}


def test_each_pod_that_was_helped_lets_one_more_of_its_group_request_at_a_time() -> None:
    """A hundred pods that machines help are helped in four rounds, and one that is deleted while it
    asks is no sign that asking helps.
    """
    rules, now, rounds = _rules(*(f"p{number}" for number in range(100))), 0, []
    while len(rules):
        asks = [ask.pod for _, ask in _watched(rules, now, now + 20)]
        now += 21
        rounds.append(len(asks))
        for pod in asks:
            rules.forget(pod, bound=True)
    assert rounds == [10, 20, 40, 30]
    rules = _rules(*(f"p{number}" for number in range(20)))
    for pod in {ask.pod for _, ask in _watched(rules, 0, 20)}:
        rules.forget(pod)
    assert len(_watched(rules, 21, 41)) == MAX_ASKING_PER_GROUP


def test_equals_that_take_the_machines_which_others_requested_let_as_many_more_request() -> None:
    """kube-scheduler gives a machine to whichever pod it tries first. Room that others have left on
    a Node that was there is no sign that machines help.
    """
    rules = _rules(*(f"p{number}" for number in range(30)))
    asked = {ask.pod for _, ask in _watched(rules, 0, 20)}
    assert asked == {f"p{number}" for number in range(10)}
    for number in range(20, 30):
        rules.forget(f"p{number}", bound=True)
    assert _watched(rules, 21, 41) == []
    for number in range(15, 20):
        rules.forget(f"p{number}", bound=True, on_new_node=True)
    more = [ask.pod for _, ask in _watched(rules, 42, 62)]
    assert sorted(more) == [f"p{number}" for number in range(10, 15)]


def test_where_a_new_node_may_have_two_half_of_the_pods_request_a_machine_each() -> None:
    """Together they would get one machine with room for all, which may have two of them."""

    def two_at_most(_: str) -> Outlook:
        return Outlook(should_wait=False, most_on_node=2)

    names = [f"p{number}" for number in range(9)]
    rules = _rules(*names)
    requests = _watched(rules, 1, 6, two_at_most, _no_room)
    assert requests == [(6, AdditionalRequest(name, 1, alone=True)) for name in names[:5]]
    # With few enough left, a machine with room for all of them serves them all.
    for name in names[:7]:
        rules.forget(name, bound=True)
    requests = _watched(rules, 7, 12, two_at_most, _no_room)
    assert requests == [(12, AdditionalRequest(name, 1, alone=False)) for name in names[7:]]


def test_groups_do_not_block_each_other_but_few_request_in_one_pass() -> None:
    rules = Rules()
    for number in range(100):
        rules.observe(f"p{number}", f"g{number}", f"{number:03}", 0.0)
    by_second = Counter(at for at, _ in _watched(rules, 0, 30))
    assert by_second == {15: MAX_REQUESTS_PER_PASS, 16: 20, 17: 20, 18: 20, 19: 20}


def test_of_an_unplaced_gang_only_the_oldest_requests() -> None:
    """Machines for several of them could come in as many domains."""
    rules = _rules("a", "b", "c")
    asks = _watched(rules, 0, 3_600, lambda _: Outlook(should_wait=False, gang_unplaced=True))
    assert {ask.pod for _, ask in asks} == {"a"}
    rules.forget("a")
    assert {ask.pod for _, ask in _watched(rules, 3_601, 3_700)} == {"b", "c"}


def test_a_pod_that_no_machine_helps_gives_its_turn_to_the_next() -> None:
    others = "bcdefghijk"
    rules = _rules("claim", *others)
    [*_, (at, _)] = _watched(rules, 0, 15)
    rules.defer("claim", at)
    assert rules.asked("claim") == 0
    assert [ask.pod for _, ask in _watched(rules, 16, 40)] == ["k"]
    for pod in others:
        rules.forget(pod)
    later = _watched(rules, 41, 140)
    assert [(at, ask.pod) for at, ask in later] == [
        (15 + DEFER_SECONDS + UNSCHEDULABLE_DELAY_SECONDS, "claim")
    ]


def test_what_was_asked_for_under_an_earlier_controller_counts() -> None:
    rules = Rules()
    rules.observe("a", "g", "000", 0.0, asked=2)
    assert [(at, ask.number) for at, ask in _watched(rules, 0, 1_000)] == [(180, 3)]


def test_to_be_seen_again_changes_nothing_and_a_new_group_keeps_what_was_asked() -> None:
    rules = _rules("a")
    _watched(rules, 0, 20)
    rules.observe("a", "g", "000", 21.0)
    assert rules.asked("a") == 1
    rules.observe("a", "other", "000", 22.0)
    assert rules.asked("a") == 1


def test_a_bound_pod_is_forgotten_and_its_number_of_requests_returned() -> None:
    rules = _rules("a")
    _watched(rules, 0, 80)
    assert rules.forget("a") == 2
    assert rules.forget("a") == 0
    assert (len(rules), list(rules)) == (0, [])
    assert _watched(rules, 81, 1_000) == []


_MOVES = st.lists(
    st.tuples(
        st.sampled_from(["see", "see ten", "bound", "bound on new", "aside", "wait", "patient"]),
        st.integers(0, 59),
        st.integers(1, 90),
    ),
    max_size=60,
)


def _bound(rules: Rules, number: int, *, on_new_node: bool) -> bool:
    """Bind a pod; whether that shows that requests help its group, of the two there are."""
    pod, its = f"p{number}", [each for each in rules if int(each[1:]) % 2 == number % 2]
    others_ask = on_new_node and any(map(rules.asked, its))
    helps = pod in rules and (others_ask or rules.asked(pod) > 0)
    rules.forget(pod, bound=True, on_new_node=on_new_node)
    return helps


@given(_MOVES)
def test_whatever_happens_no_pod_requests_too_soon_or_too_often(
    moves: Iterable[tuple[str, int, int]],
) -> None:
    """Numbers go up by one, the hold passes before each, and a group never has more that ask than
    ten and those that were bound after requests, their own or, on a new Node, others'.
    """
    rules, now, seen_at = Rules(), 0.0, dict[str, float]()
    helped = Counter[int]()
    for move, number, seconds in moves:
        pod, group = f"p{number}", f"g{number % 2}"
        if move.startswith("see"):
            for each in range(number, number + 20 if move == "see ten" else number + 1, 2):
                new = f"p{each}" not in rules
                seen_at |= {f"p{each}": now} if new else {}
                rules.observe(f"p{each}", group, f"{each:03}", now)
        elif move.startswith("bound"):
            helped[number % 2] += _bound(rules, number, on_new_node=move == "bound on new")
        elif move == "aside":
            rules.defer(pod, now)
        else:
            for _ in range(seconds):
                now += 1
                before = {each: rules.asked(each) for each in rules}
                outlook = Outlook(should_wait=move == "patient")
                known = rules.due_requests(now, lambda _, it=outlook: it, lambda _: True)  # type: ignore[misc]
                for ask in known:
                    assert move == "wait"
                    assert ask.number == before[ask.pod] + 1 <= MAX_ADDITIONAL_PER_POD
                    assert now - seen_at[ask.pod] >= UNSCHEDULABLE_DELAY_SECONDS
                asking = Counter(int(each[1:]) % 2 for each in rules if rules.asked(each))
                assert all(asking[each] <= MAX_ASKING_PER_GROUP + helped[each] for each in asking)
