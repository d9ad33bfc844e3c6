"""Kernel that sorts by whole numbers, digit by digit, without comparing any."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.snapshot import Longs, Rows
from bigfleet.jit import kernel

_DIGIT_BITS = 11
_KEY_BITS = 63


@kernel
def order_of(keys: Longs) -> Rows:
    """The order of ascending `keys` [P], none of which is negative; equal ones stay in theirs."""
    number, shift = keys.shape[0], 0
    order, sorted_ = np.arange(number), np.empty(number, np.int64)
    most = keys.max() if number else 0
    while shift < _KEY_BITS and most >> shift:
        start = np.zeros((1 << _DIGIT_BITS) + 1, np.int64)
        for at in range(number):
            start[((keys[at] >> shift) & ((1 << _DIGIT_BITS) - 1)) + 1] += 1
        start = np.cumsum(start)
        for place in range(number):
            digit = (keys[order[place]] >> shift) & ((1 << _DIGIT_BITS) - 1)
            sorted_[start[digit]] = order[place]
            start[digit] += 1
        order, sorted_ = sorted_, order
        shift += _DIGIT_BITS
    return order
