"""Penalties in dollars, rounded up to powers of two so that similar needs aggregate.

Bucket 1 is $0, 2 ends at $0.50, and bucket n from 3 to 26 ends at 2**(n-3) dollars. Bucket 27 is
PINNED: no finite price outweighs it.
"""

from __future__ import annotations

import math

from bigfleet.model.errors import InvalidInput

ZERO, HALF_DOLLAR, LARGEST, PINNED = 1, 2, 26, 27


def bucket(dollars: float) -> int:
    """The lowest bucket with an upper bound >= `dollars`; PINNED for more than 2**23."""
    if math.isnan(dollars) or dollars < 0:
        raise InvalidInput("penalty", dollars, "is not an amount of dollars >= 0")
    if dollars == 0:
        return ZERO
    if dollars <= 0.5:
        return HALF_DOLLAR
    if dollars > 2.0 ** (LARGEST - 3):
        return PINNED
    # dollars = mantissa * 2**exponent, 0.5 <= mantissa < 1
    mantissa, exponent = math.frexp(dollars)
    return 3 + (exponent - 1 if mantissa == 0.5 else exponent)


def dollars(bucket: int) -> float:
    """The upper bound of `bucket`; infinite for PINNED. InvalidInput for an unknown bucket."""
    if bucket == ZERO:
        return 0.0
    if bucket == HALF_DOLLAR:
        return 0.5
    if 3 <= bucket <= LARGEST:
        return float(2 ** (bucket - 3))
    if bucket == PINNED:
        return math.inf
    raise InvalidInput("penalty bucket", bucket, f"is not one of {ZERO} to {PINNED}")
