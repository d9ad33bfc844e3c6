"""The result of `bigfleet audit` at the end of a run."""

from __future__ import annotations

import msgspec


class FleetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of the fleet say of one object, by source, and what to do about it."""

    kind: str
    object: str
    says: dict[str, str]
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """One line for people."""
        statements = "; ".join(f"{source}: {said}" for source, said in self.says.items())
        return f"{self.kind}: {self.object}: {statements}"


class FleetAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The differences found, None if the audit failed; `error` then says why."""

    differences: list[FleetDifference] | None = None
    error: str = ""


class _Output(msgspec.Struct):
    differences: list[FleetDifference]


def read_audit(output: bytes) -> FleetAudit:
    """The result from what `bigfleet audit --output json` printed."""
    try:
        return FleetAudit(differences=msgspec.json.decode(output, type=_Output).differences)
    except msgspec.MsgspecError as error:
        return FleetAudit(error=f"what bigfleet audit printed cannot be read: {error}")
