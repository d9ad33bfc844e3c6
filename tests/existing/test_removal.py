"""What an autoscaler was told and did is removed although the server is busy with just that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.kube.client import FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS, ApiError
from loaddriver.substrates.existing import definitions
from loaddriver.substrates.existing.definitions import COLLECTION
from tests.support.existing_clusters import definition

KIND = "nodeclaims.karpenter.sh"
OBJECTS = "/apis/karpenter.sh/v1/nodeclaims"


class Server:
    """A stand-in for a client: it has one definition, answers as told, and keeps what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            COLLECTION: {"items": [definition(KIND)]},
            OBJECTS: {"items": [{"metadata": {"name": "a", "finalizers": ["karpenter.sh/x"]}}]},
            **answers,
        }
        self.asked: list[tuple[str, str]] = []

    async def get(self, path: str, _query: object = None) -> bytes:
        answer = self.answers[path]
        if isinstance(answer, int):
            raise ApiError(f"GET {path}", answer, "", "")
        return msgspec.json.encode(answer)

    async def patch(self, path: str, body: Any) -> bytes:
        assert body == {"metadata": {"finalizers": None}}
        self.asked.append(("release", path))
        return b""

    async def delete(self, path: str, _body: object = None) -> bytes:
        self.asked.append(("delete", path))
        return b""


async def remaining(server: Server) -> list[str]:
    return await definitions.begin_removal(server)  # type: ignore[arg-type]


async def test_objects_that_nobody_ends_any_more_are_released_before_their_kind_goes() -> None:
    server = Server()
    assert await remaining(server) == [KIND]
    assert server.asked == [("release", f"{OBJECTS}/a"), ("delete", f"{COLLECTION}/{KIND}")]


@pytest.mark.parametrize("status", [NOT_FOUND, TOO_MANY_REQUESTS])
async def test_a_kind_that_is_not_served_at_the_moment_is_asked_for_again(status: int) -> None:
    """An API server says 429 while it changes the storage of a kind that another client removes."""
    server = Server(**{OBJECTS: status})
    assert await remaining(server) == [KIND]
    assert server.asked == [("delete", f"{COLLECTION}/{KIND}")]


async def test_a_kind_whose_objects_may_not_be_seen_is_an_error() -> None:
    with pytest.raises(ApiError):
        await remaining(Server(**{OBJECTS: FORBIDDEN}))


async def test_who_may_not_see_definitions_has_made_none() -> None:
    """Runs without an autoscaler do not need that right."""
    assert await remaining(Server(**{COLLECTION: FORBIDDEN})) == []
