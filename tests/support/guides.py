"""The commands of a guide, as a reader would run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_BLOCK = re.compile(r"^(?:    [^\n]*\n)+", re.MULTILINE)


def commands(guide: str, program: str) -> list[list[str]]:
    """The words after `program` of each command in the guide's blocks, such as `loaddriver run`."""
    text = "".join(_BLOCK.findall((GUIDES / guide).read_text())).replace("\\\n", " ")
    lines = (re.sub(r"^(?:\.venv/bin/)?", "", line.strip()) for line in text.splitlines())
    start = f"{program} "
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]
