"""What a check says when its rule does not hold, and what it may expect of a call."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import grpc.aio

from bigfleet.model.errors import BigFleetError


class Broken(BigFleetError):
    """The provider broke the rule of a check; the text is what was seen instead."""


class NotChecked(BigFleetError):
    """A check could not ask its question; the text says what it would need."""


def expect(holds: bool, seen: object) -> None:
    """Broken unless `holds`."""
    if not holds:
        raise Broken(str(seen).strip().replace("\n", " "))


def told(error: grpc.aio.AioRpcError) -> str:
    """The code that a call ended with, and what the provider said about it."""
    return f"{error.code().name} ({error.details() or 'no reason given'})"


async def refusal(call: Awaitable[object], what: str) -> grpc.aio.AioRpcError:
    """What `call` is refused with; Broken if it is accepted."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise Broken(f"{what} was accepted")


async def refused_as_stale(call: Awaitable[object], what: str) -> None:
    """Broken unless `call` is refused with FAILED_PRECONDITION."""
    error = await refusal(call, what)
    stale = error.code() is grpc.StatusCode.FAILED_PRECONDITION
    expect(stale, f"{what} was refused with {told(error)}, not with FAILED_PRECONDITION")


async def refused_but_not_as_stale(call: Awaitable[object], what: str) -> grpc.StatusCode:
    """The code; Broken when it is FAILED_PRECONDITION, which means stale and nothing else."""
    error = await refusal(call, what)
    seen = f"{what} was refused with {told(error)}, as if stale"
    expect(error.code() is not grpc.StatusCode.FAILED_PRECONDITION, seen)
    return error.code()
