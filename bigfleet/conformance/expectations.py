"""Expectations of checks, and their violation."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import grpc.aio

from bigfleet.model.errors import BigFleetError


class RuleViolation(BigFleetError):
    """The provider violated the rule of a check; the text is what was observed."""


class Skipped(BigFleetError):
    """A check could not run; the text says what it needs."""


def expect(holds: bool, seen: object) -> None:
    """RuleViolation unless `holds`."""
    if not holds:
        raise RuleViolation(str(seen).strip().replace("\n", " "))


def describe_error(error: grpc.aio.AioRpcError) -> str:
    """The status code and details of an error."""
    return f"{error.code().name} ({error.details() or 'no reason given'})"


async def rejection(call: Awaitable[object], what: str) -> grpc.aio.AioRpcError:
    """The error of `call`; RuleViolation if it succeeds."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise RuleViolation(f"{what} was accepted")


async def expect_stale(call: Awaitable[object], what: str) -> None:
    """RuleViolation unless `call` is rejected with FAILED_PRECONDITION."""
    error = await rejection(call, what)
    stale = error.code() is grpc.StatusCode.FAILED_PRECONDITION
    expect(stale, f"{what} was rejected with {describe_error(error)}, not FAILED_PRECONDITION")


async def expect_rejected_not_stale(call: Awaitable[object], what: str) -> grpc.StatusCode:
    """The error's code; RuleViolation for FAILED_PRECONDITION, which only means stale."""
    error = await rejection(call, what)
    seen = f"{what} was rejected with {describe_error(error)}, as if stale"
    expect(error.code() is not grpc.StatusCode.FAILED_PRECONDITION, seen)
    return error.code()
