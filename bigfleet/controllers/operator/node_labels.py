"""Labels that a joining machine's Node is to have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# Kubernetes' admission lets a kubelet give its own Node these, and no others of Kubernetes'.
_KUBELETS = frozenset(
    {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELETS_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
# What we mark Nodes with ourselves.
_OUR_DOMAIN = "bigfleet.lucy.sh"


def labels_of(requirements: Iterable[NodeSelectorRequirement]) -> Mapping[str, str]:
    """Those with which the requirements hold, where that leaves one value and a kubelet may say it;
    of the others the machine's provider, or the cluster's, has to take care.
    """
    return {
        each.key: each.values[0]
        for each in requirements
        if each.operator == NodeSelectorRequirement.IN
        and len(each.values) == 1
        and _is_to_be_given(each.key)
        and (not each.values[0] or _NAME.fullmatch(each.values[0]))
    }


def _is_to_be_given(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (prefix and not _PREFIX.fullmatch(prefix)):
        return False
    if key in _KUBELETS or _is_in(prefix, _KUBELETS_DOMAINS):
        return True
    return not _is_in(prefix, (*_KUBERNETES_DOMAINS, _OUR_DOMAIN))


def _is_in(prefix: str, domains: Iterable[str]) -> bool:
    return any(prefix == domain or prefix.endswith(f".{domain}") for domain in domains)
