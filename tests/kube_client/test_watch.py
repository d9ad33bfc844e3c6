"""A follower of a watch ends up with what the server has, whatever becomes of its watches."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.errors import InvalidInput
from tests.kube_client.watch_rig import FakeApi, Rig
from tests.support.waiting import eventually

_NAMES = st.sampled_from("abcde")
_HARMLESS = st.one_of(
    st.tuples(st.just("put"), _NAMES),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.sampled_from(["cut", "cut-mid-line", "bookmark", "breathe"]), st.just("")),
)
_ANYTHING = st.one_of(_HARMLESS, st.tuples(st.sampled_from(["forget", "fail"]), st.just("")))


async def _act(api: FakeApi, action: str, name: str) -> None:
    match action:
        case "put":
            api.put(name)
        case "delete":
            api.delete(name)
        case "cut" | "cut-mid-line":
            api.cut(mid_line=action == "cut-mid-line")
        case "bookmark":
            api.bookmark()
        case "forget":
            api.forget()
            api.cut()
        case "fail":
            api.refuse_with = 500
            api.cut()
        case "breathe":
            await asyncio.sleep(0.01)


async def _play(before: list[str], script: list[tuple[str, str]]) -> Rig:
    api = FakeApi()
    for name in before:
        api.put(name)
    rig = await Rig.start(api)
    try:
        for action, name in script:
            await _act(api, action, name)
            await asyncio.sleep(0)
        await rig.until_equal()
        # It may be about to list anew, though its copy is equal already.
        stats = rig.follower.watch.stats
        await eventually(lambda: stats.expired == rig.follower.lists - 1, "each gap to be a list")
    finally:
        await rig.close()
    return rig


@settings(max_examples=40)
@given(st.lists(_NAMES, max_size=5), st.lists(_ANYTHING, max_size=25))
def test_the_copy_ends_equal_to_the_server_and_every_later_list_is_counted_as_a_gap(
    before: list[str], script: list[tuple[str, str]]
) -> None:
    rig = asyncio.run(_play(before, script))
    assert rig.follower.watch.stats.expired == rig.follower.lists - 1


@settings(max_examples=40)
@given(st.lists(_HARMLESS, max_size=25))
def test_without_forgetting_every_change_is_seen_once_and_in_order(
    script: list[tuple[str, str]],
) -> None:
    async def play() -> None:
        api = FakeApi()
        rig = await Rig.start(api)
        try:
            await rig.until_equal()
            for action, name in script:
                await _act(api, action, name)
                await asyncio.sleep(0)
            await rig.until_equal()
            happened = [
                (e["object"]["metadata"]["name"], e["object"]["value"], e["type"] == "DELETED")
                for e in api.history
            ]
            await eventually(lambda: rig.follower.changes == happened)
            assert rig.follower.lists == 1
        finally:
            await rig.close()

    asyncio.run(play())


async def test_a_list_of_many_pages_is_one_list() -> None:
    rig = await _play(["a", "b", "c", "d", "e"], [])
    assert rig.follower.lists == 1
    assert sum("watch" not in request for request in rig.api.requests) == 3


async def test_after_a_bookmark_a_forgotten_past_does_not_matter() -> None:
    api = FakeApi()
    api.put("a")
    rig = await Rig.start(api)
    try:
        await rig.until_equal()
        for _ in range(3):
            api.bookmark()
            await eventually(lambda: not api.bookmark_due)
        api.forget()
        api.cut()
        api.put("b")
        await rig.until_equal()
        assert rig.follower.lists == 1
    finally:
        await rig.close()


async def test_a_cut_after_progress_costs_no_waiting() -> None:
    """Fifty cuts of a busy watch: with a backoff between them it would be nearly four minutes."""
    api = FakeApi()
    rig = await Rig.start(api)
    try:
        await rig.until_equal()
        started = time.monotonic()
        for number in range(50):
            api.put(f"thing-{number}")
            api.cut()
            await rig.until_equal()
        assert time.monotonic() - started < 60
        assert rig.follower.lists == 1
    finally:
        await rig.close()


async def test_a_server_that_only_fails_is_asked_ever_less_often() -> None:
    api = FakeApi()
    rig = await Rig.start(api)
    try:
        await rig.until_equal()
        asked = len(api.requests)
        api.refuse_all_with = 503
        api.cut()
        await asyncio.sleep(1)
        await eventually(lambda: len(api.requests) - asked >= 3)
        assert len(api.requests) - asked <= 8
        assert "503" in rig.follower.watch.stats.last_error
    finally:
        await rig.close()


async def test_an_object_of_another_schema_ends_the_watch_with_an_error() -> None:
    api = FakeApi()
    api.put("a")
    api.objects["a"]["value"] = "text"
    rig = await Rig.start(api)
    try:
        await eventually(lambda: rig.failure() is not None)
        assert isinstance(rig.failure(), InvalidInput)
        assert "is not a valid Thing" in str(rig.failure())
    finally:
        await rig.close()


async def test_a_server_error_on_a_read_is_reported_and_not_repeated_in_secret() -> None:
    api = FakeApi()
    api.refuse_with = 500
    rig = await Rig.start(api)
    try:
        await rig.until_equal()
        assert "500" in rig.follower.watch.stats.last_error
    finally:
        await rig.close()


async def test_batched_changes_are_all_delivered_in_order() -> None:
    """Cuts, bookmarks and the end of a connection during the batch interval."""
    api = FakeApi()
    rig = await Rig.start(api, batch_seconds=0.02)
    try:
        await rig.until_equal()
        for number in range(60):
            api.put(f"thing-{number % 7}")
            if number % 9 == 0:
                api.cut()
            await asyncio.sleep(0.003)
        await rig.until_equal()
        versions = [version for _, version, _ in rig.follower.changes]
        assert versions == sorted(versions)
        assert len(versions) == 60
        assert rig.follower.lists == 1
    finally:
        await rig.close()
