"""The gRPC status code of each error, for all servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio

from bigfleet.model.errors import (
    BigFleetError,
    Fenced,
    IllegalTransition,
    InvalidInput,
    Unavailable,
    UnknownObject,
)

CODES: Mapping[type[BigFleetError], grpc.StatusCode] = {
    Fenced: grpc.StatusCode.FAILED_PRECONDITION,
    IllegalTransition: grpc.StatusCode.ABORTED,
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    UnknownObject: grpc.StatusCode.NOT_FOUND,
    BigFleetError: grpc.StatusCode.ABORTED,
}


def code_of(error: BigFleetError) -> grpc.StatusCode:
    """The code of the error's type, or of its nearest base type in `CODES`."""
    return next(CODES[base] for base in type(error).__mro__ if base in CODES)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: BigFleetError) -> NoReturn:
    """End the call with the error's code and text."""
    await context.abort(code_of(error), str(error))
    raise AssertionError("abort always raises")
