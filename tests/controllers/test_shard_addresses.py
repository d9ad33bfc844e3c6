"""Which shard an operator dials, as shards come, go and send it on."""

from __future__ import annotations

from bigfleet.controllers.operator.shard_addresses import ShardAddressList


def test_after_a_failure_the_next_address_is_dialed_and_then_the_first_again() -> None:
    """Those before count as failed rounds, so that waiting grows by rounds and not by addresses."""
    route = ShardAddressList(["a", "b", "a"])
    dialed, rounds = [], []
    for _ in range(4):
        dialed.append(route.address)
        rounds.append(route.failed())
    assert dialed == ["a", "b", "a", "b"]
    assert rounds == [0, 0, 1, 1]


def test_the_shard_that_served_last_is_dialed_too() -> None:
    """Another one redirected to it, and it is found again without a redirect."""
    route = ShardAddressList(["a", "b"])
    route.redirected("c")
    route.served()
    dialed = []
    for _ in range(4):
        route.failed()
        dialed.append(route.address)
    assert dialed == ["a", "b", "c", "a"]


def test_a_redirect_that_did_not_serve_is_not_dialed_again() -> None:
    """Only the configured ones are known to be worth it."""
    route = ShardAddressList(["a", "b"])
    route.redirected("c")
    route.failed()
    assert route.address == "a"


def test_a_session_ends_the_count_of_failures() -> None:
    """Who was served for a while is not made to wait for what failed before."""
    route = ShardAddressList(["a"])
    assert [route.failed(), route.failed()] == [0, 1]
    route.served()
    assert route.failed() == 0
