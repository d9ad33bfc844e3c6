"""Writes and reads the results folder of a run."""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bigfleet.model.errors import UNDECODABLE
from loaddriver.errors import ProfileError
from loaddriver.judge.schema import SCHEMA, Summary
from loaddriver.record.rows import PodRow
from loaddriver.report.junit import render_junit
from loaddriver.report.manifest import (
    MANIFEST,
    check_manifest,
    update_manifest,
    write_manifest,
)
from loaddriver.report.page import render_page
from loaddriver.report.replacing import replace_file
from loaddriver.report.table import read_rows, write_rows

SUMMARY, REPORT, JUNIT, PODS = "summary.json", "report.html", "junit.xml", "pods.csv.gz"
_WITH_VERDICT = (JUNIT, SUMMARY, REPORT)
BARE, WITHOUT_ANCHORS = "bare", "anchors-off"
_KNOWN = {
    SUMMARY: "all results of the run, machine-readable",
    JUNIT: "the gates as test cases, for CI",
    PODS: "one line per created pod with all its timestamps",
    "plan.jsonl": "every request of the load and its due time",
    BARE: "the same plan on the same nodes without BigFleet",
    WITHOUT_ANCHORS: "the same plan without anchors",
    "nodes.jsonl": "every machine that became a node",
    "profile.json": "the profile as it was run",
    "scheduler-config.yaml": "the given configuration of kube-scheduler",
    "audit.json": "what the parts of the fleet said differently of each other at the end",
    "groups.jsonl": "the placement of each gang's first pod, and the reason",
    "logs": "the logs of all components",
    MANIFEST: "the SHA-256 of each file, as the run left it",
}
_UNREADABLE = (OSError, EOFError, zlib.error, csv.Error, *UNDECODABLE)
_BOUND = re.compile(r"\{\s*\n\s*\"atLeast\"[^{}]*\}")
_NUMBERS = re.compile(r"\[\s*\n(?:[\s\d.,eE+-]|null|\{ ?\"atLeast\"[^}]*\})*?\]")
_PAIRS = re.compile(r"\[\s*\n(?:\s*\[[-\d., eE+]*\],?\s*)+\]")


def write_results(folder: Path, summary: Summary, rows: Sequence[PodRow]) -> None:
    """Write all files of a run into `folder`; each is replaced atomically."""
    write_rows(folder / PODS, rows)
    write_verdict(folder, summary)


def write_verdict(folder: Path, summary: Summary) -> None:
    """Write the files that contain the verdict: the summary, the report and the JUnit file."""
    replace_file(folder / JUNIT, render_junit(summary))
    replace_file(folder / SUMMARY, encode_summary(summary))
    update_manifest(folder, _WITH_VERDICT[:2])
    check = check_manifest(folder)
    page = render_page(summary, _files(folder), check.sentence if check else "")
    replace_file(folder / REPORT, page.encode())
    update_manifest(folder, _WITH_VERDICT)


def seal_results(folder: Path, summary: Summary) -> None:
    """Write the manifest, once nothing writes into `folder` any more, and the report with it."""
    write_manifest(folder)
    write_verdict(folder, summary)


def check_unchanged(folder: Path) -> str:
    """Compare a results folder, and its bare run's, with their manifests.

    Returns the outcome in words. Raises ProfileError if a file was changed.
    """
    said: list[str] = []
    for each in (folder, folder / BARE):
        check = check_manifest(each)
        if check is not None and check.changed:
            raise ProfileError(
                [
                    f"{each}: {check.sentence}; restore them, or run the profile again: a verdict "
                    "on changed results would not be the run's"
                ]
            )
        if check is not None:
            said.append(f"{each}: {check.sentence}")
        elif (each / SUMMARY).exists():
            said.append(
                f"{each}: has no {MANIFEST}, so nobody knows whether its files are the run's"
            )
    return "\n".join(said)


def read_summary(folder: Path) -> Summary:
    """The summary of a results folder.

    Raises ProfileError if there is none or its schema version differs.
    """
    path = folder / SUMMARY
    try:
        content = path.read_bytes()
        _check_schema(path, msgspec.json.decode(content, type=_Versioned).schema)
        return msgspec.json.decode(content, type=Summary)
    except OSError as error:
        raise ProfileError(
            [f"{path}: {error.strerror}; give the results folder of a finished run"]
        ) from None
    except UNDECODABLE as error:
        raise ProfileError([f"{path}: not a summary of schema {SCHEMA}: {error}"]) from None


class _Versioned(msgspec.Struct):
    schema: str


def _check_schema(path: Path, schema: str) -> None:
    """Reject other schema versions: their percentiles follow other rules."""
    if schema != SCHEMA:
        raise ProfileError(
            [
                f"{path}: a summary of schema {schema}, and this build reads {SCHEMA}, whose "
                "percentiles follow another rule; judge it with the build that wrote it, or run "
                "the profile again"
            ]
        )


def read_bare(folder: Path) -> Summary | None:
    """The summary of a run's bare run, from a subfolder of its results."""
    return read_summary(folder / BARE) if (folder / BARE / SUMMARY).exists() else None


def read_pods(folder: Path) -> list[PodRow]:
    """The rows of a results folder. Raises ProfileError if they cannot be read."""
    path = folder / PODS
    try:
        return read_rows(path)
    except _UNREADABLE as error:
        why = getattr(error, "strerror", None) or error
        raise ProfileError([f"{path}: {why}; it is not as its run left it"]) from None


def encode_summary(summary: Summary) -> bytes:
    """Indented JSON with keys in order and lists of numbers on one line."""
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()
    text = _NUMBERS.sub(_on_one_line, _BOUND.sub(_on_one_line, text))
    return (_PAIRS.sub(_on_one_line, text) + "\n").encode()


def _on_one_line(found: re.Match[str]) -> str:
    text = re.sub(r"\s+", " ", found.group())
    for loose, tight in (("[ ", "["), (" ]", "]"), ("{ ", "{"), (" }", "}")):
        text = text.replace(loose, tight)
    return text


def _files(folder: Path) -> list[tuple[str, str]]:
    names = [name for name in _KNOWN if (folder / name).exists()]
    return [(f"{name}/" if (folder / name).is_dir() else name, _KNOWN[name]) for name in names]
