"""`bigfleet fedhpa join`: stores a member's kubeconfig and reports what will not work with it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.fedhpa.members.kubeconfig import parse_access, parse_current_context
from bigfleet.fedhpa.members.registry import SECRETS, member_secret
from bigfleet.kube.access import connect
from bigfleet.kube.client import (
    APPLY_PATCH,
    CONNECTION_ERRORS,
    ApiError,
    InlineAccess,
    KubeClient,
)
from bigfleet.model.errors import BigFleetError, InvalidInput

_APPLY = {"fieldManager": "bigfleet-join", "force": "true"}
_ONLY = "member"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MAY_SCALE = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {
        "resourceAttributes": {
            "group": "autoscaling",
            "resource": "horizontalpodautoscalers",
            "verb": "patch",
        }
    },
}


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict


async def join(kubeconfig: Path | None, name: str, member: Path, labels: Sequence[str]) -> str:
    """Store the member's kubeconfig as a Secret; return a message with any warnings about it.

    InvalidInput if the federation would reject it.
    """
    text = complete(member)
    access = parse_access(text, f"--member {member}")
    secret = member_secret(name, text, dict(_label(each) for each in labels))
    async with await connect(kubeconfig) as client:
        try:
            await client.patch(f"{SECRETS}/{name}", secret, APPLY_PATCH, _APPLY)
        except ApiError as error:
            raise BigFleetError(f"{client.server}: {error}") from None
        joined = f"{name} is a member of the federation at {client.server}"
    return "\n".join([joined, *await _warnings(access)])


async def _warnings(access: InlineAccess) -> list[str]:
    """Warnings only: a member may be down now, or not reachable from this machine."""
    try:
        async with KubeClient.with_access(access) as client:
            answer = await client.create(_REVIEWS, _MAY_SCALE)
    except (*CONNECTION_ERRORS, ApiError) as error:
        return [f"warning: {access.server} does not accept the kubeconfig from here: {error!s}"]
    if msgspec.json.decode(answer, type=_Review).status.allowed:
        return []
    return [
        f"warning: its user may not scale there; apply bigfleet/api/fedhpa/rbac/member.yaml to "
        f"{access.server}"
    ]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidInput("--label", text, "is not KEY=VALUE")
    return key, value


def complete(path: Path) -> str:
    """The kubeconfig's current context alone, with the files that it names inlined.

    InvalidInput for a user whose token comes from a command: that cannot be inlined.
    """
    what = f"--member {path}"
    try:
        parts = parse_current_context(path.read_text(), what)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(what, str(path), f"cannot be read: {error}") from None
    cluster, user = dict(parts.cluster), dict(parts.user)
    for part in (cluster, user):
        _inline_files(part, path.parent)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _ONLY, "cluster": cluster}],
        "users": [{"name": _ONLY, "user": user}],
        "contexts": [{"name": _ONLY, "context": {"cluster": _ONLY, "user": _ONLY}}],
        "current-context": _ONLY,
    }
    return yaml.safe_dump(content)


def _inline_files(part: dict[str, Any], folder: Path) -> None:
    if "exec" in part:
        hint = "has a user with an exec command; use a token or a certificate"
        raise InvalidInput("--member", str(folder), hint)
    try:
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if file := part.pop(key, None):
                part[f"{key}-data"] = base64.b64encode((folder / file).read_bytes()).decode()
        if file := part.pop("tokenFile", None):
            part["token"] = (folder / file).read_text().strip()
    except OSError as error:
        hint = "is referenced by the kubeconfig and cannot be read"
        raise InvalidInput("--member", str(error.filename), hint) from None
