"""What a check says when its rule does not hold, and what it may expect of a call."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import grpc.aio

from bigfleet.model.errors import BigFleetError


class RuleViolation(BigFleetError):
    """The provider broke the rule of a check; the text is what was seen instead."""


class Skipped(BigFleetError):
    """A check could not ask its question; the text says what it would need."""


def expect(holds: bool, seen: object) -> None:
    """Broken unless `holds`."""
    if not holds:
        raise RuleViolation(str(seen).strip().replace("\n", " "))


def describe_error(error: grpc.aio.AioRpcError) -> str:
    """The code that a call ended with, and what the provider said about it."""
    return f"{error.code().name} ({error.details() or 'no reason given'})"


async def rejection(call: Awaitable[object], what: str) -> grpc.aio.AioRpcError:
    """What `call` is refused with; Broken if it is accepted."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise RuleViolation(f"{what} was accepted")


async def expect_stale(call: Awaitable[object], what: str) -> None:
    """Broken unless `call` is refused with FAILED_PRECONDITION."""
    error = await rejection(call, what)
    stale = error.code() is grpc.StatusCode.FAILED_PRECONDITION
    expect(stale, f"{what} was refused with {describe_error(error)}, not with FAILED_PRECONDITION")


async def expect_rejected_not_stale(call: Awaitable[object], what: str) -> grpc.StatusCode:
    """The code; Broken when it is FAILED_PRECONDITION, which means stale and nothing else."""
    error = await rejection(call, what)
    seen = f"{what} was refused with {describe_error(error)}, as if stale"
    expect(error.code() is not grpc.StatusCode.FAILED_PRECONDITION, seen)
    return error.code()
