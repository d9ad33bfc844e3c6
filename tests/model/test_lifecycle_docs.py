"""What the documentation says of a machine's lifecycle follows from its table."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bigfleet.model.machine import TRANSITIONS, MachineEvent, MachineState

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-provider.md"
REWRITE = "REWRITE_GOLDEN"
BEGIN = "<!-- generated: REWRITE_GOLDEN=1 .venv/bin/pytest tests/model/test_lifecycle_docs.py -->\n"
END = "<!-- end of what is generated -->\n"
CALL = re.compile(r"^\| `(\w+)` \| (\w+) -> (\w+) -> (\w+):", re.MULTILINE)


def diagram() -> str:
    """The lifecycle as a Mermaid state diagram, which GitHub draws."""
    arrows = (
        f"    {before.name} --> {after.name}: {event.value}"
        for (before, event), after in TRANSITIONS.items()
    )
    first = f"    [*] --> {MachineState.SPECULATIVE.name}"
    return "\n".join(["```mermaid", "stateDiagram-v2", first, *arrows, "```", ""])


def test_the_diagram_of_the_lifecycle_is_current() -> None:
    """REWRITE_GOLDEN=1 writes it anew."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    written, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has lost its line {BEGIN!r}"
    assert end, f"{PAGE.name} has lost its line {END!r}"
    if os.environ.get(REWRITE):
        PAGE.write_text(f"{before}{begin}{diagram()}{end}{after}")
        return
    assert written == diagram(), f"{PAGE.name} is not current; {REWRITE}=1 writes it anew"


def test_the_calls_lead_where_the_table_says() -> None:
    """Each of the guide's four calls: the state before it, while it is under way, and after it."""
    calls = CALL.findall(PAGE.read_text())
    assert [call for call, *_ in calls] == ["Create", "Configure", "Drain", "Delete"]
    for call, *names in calls:
        before, under_way, after = (MachineState[name] for name in names)
        assert TRANSITIONS[before, MachineEvent[call.upper()]] is under_way
        ends = {to for (state, _), to in TRANSITIONS.items() if state is under_way}
        assert ends == {after, MachineState.FAILED}
