"""How much worse a number may get before its gate fails. Pure."""

from __future__ import annotations

import math

from loaddriver.judge.gates import GateResult, format_number


def least_regression(gate: GateResult) -> str:
    """The least change for the worse, from the measured value, that fails the gate; in words.

    A gate of equality fails at any change. One that nothing measured fails in any case.
    """
    value, limit = gate.value, gate.limit
    if value is None:
        return "fails: not measured"
    if not gate.passed:
        return "fails already"
    if gate.op == "==":
        return "any change"
    distance = f"{format_number(abs(limit - value))} {gate.unit}"
    if value == limit:
        return "any change for the worse"
    if gate.op == ">=":
        lost = f" ({100 * (value - limit) / value:.0f} % less)" if value > 0 else ""
        return f"more than {distance} less{lost}"
    return f"more than {distance} more{_factor(limit, value)}"


def _factor(limit: float, value: float) -> str:
    """The limit as a multiple of the value, in two digits; nothing if there is none."""
    if value <= 0:
        return ""
    factor = limit / value
    digits = max(0, 1 - math.floor(math.log10(factor)))
    return f" ({factor:,.{digits}f} times)"
