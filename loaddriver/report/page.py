"""report.html: a self-contained page about a run, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loaddriver.judge.schema import Summary
from loaddriver.report import (
    federation,
    formatting,
    plots,
    provenance,
    resources,
    validity,
    view,
    waits,
)

_TEMPLATES = Path(__file__).parent / "templates"


def render_page(summary: Summary, files: Sequence[tuple[str, str]], checked: str = "") -> str:
    """The page. `files` are names of files beside the report and their descriptions; `checked`
    says whether they are as the run left them.
    """
    return render(
        "report.html.j2",
        summary=summary,
        view=view,
        waits=waits,
        validity=validity,
        formatting=formatting,
        plots=plots,
        federation=federation,
        resources=resources,
        files=files,
        checked=checked,
        provenance=provenance,
    )


def render(template: str, **values: Any) -> str:
    """A template of this folder with these values, in the common style."""
    style = Markup((_TEMPLATES / "style.css").read_text())
    return _environment().get_template(template).render(style=style, **values)


@cache
def _environment() -> Environment:
    """Made once, as it keeps templates that are compiled: a run renders its page twice."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
