"""Which labels a machine may give its own Node. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# The labels of Kubernetes' own that the NodeRestriction admission plugin lets a kubelet set.
_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")


def may_be_set_by_kubelet(key: str) -> bool:
    """Whether `key` is a valid label that a kubelet may set; others must come from the machine's
    provider or the cluster's cloud provider.
    """
    prefix, _, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (prefix and not _PREFIX.fullmatch(prefix)):
        return False
    if key in _KUBELET_LABELS or any(is_in_domain(key, each) for each in _KUBELET_DOMAINS):
        return True
    return not any(is_in_domain(key, each) for each in _KUBERNETES_DOMAINS)


def is_in_domain(key: str, domain: str) -> bool:
    """Whether the prefix of `key` is the domain or below it."""
    prefix = key.rpartition("/")[0]
    return prefix == domain or prefix.endswith(f".{domain}")


def is_label_value(value: str) -> bool:
    """Whether a label may have this value."""
    return not value or _NAME.fullmatch(value) is not None
