"""What the topology constraints of a need say about machines and their domains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.pod_classes import FlavourFit
from bigfleet.engine.kernels.scoring import NO_LIMIT
from bigfleet.engine.kernels.term_domains import TermFlavours, count_pods, locate
from bigfleet.engine.kernels.topology import TopologyTerms
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL

# Codes of a topology key's values.
Domains = frozenset[int]


def term_keys(flavour_fit: FlavourFit) -> tuple[str, ...]:
    """The topology keys of a need's terms."""
    return (*(t.topology_key for t in flavour_fit.terms), *flavour_fit.profile.anti_affinity)


def label_keys(flavour_fit: FlavourFit) -> tuple[str, ...]:
    """The topology keys of a need's terms, kubernetes.io/hostname left out."""
    return tuple(key for key in dict.fromkeys(term_keys(flavour_fit)) if key != HOSTNAME_LABEL)


def terms_of(
    state: CycleState, index: int, packing: ClusterPacking, entered: Domains = frozenset()
) -> TopologyTerms:
    """The terms of need `index`, with its pods as placed now. The `entered` domains of its first
    term count although the cluster has no machine there yet.
    """
    its, known = state.classes.of(index), _limits(state, state.flavour_fit(index))
    terms = len(known.max_skew)
    # Machines without the label share the last domain.
    domains = 1 + max(known.domains, len(packing) if known.cell_of_flavour is None else 0)
    domain = np.empty((terms, len(packing)), np.int32)
    counts = np.zeros((terms, domains), np.bool_)
    pods = np.zeros((terms, domains), np.int64)
    locate(known.flavours, packing.machines(), int(state.priorities[index]), domain, counts)
    counts[0, sorted(entered)] = True
    count_pods(packing.placements.log, its.start, its.stop, domain, pods)
    cell, cells = _cells(known, packing.flavour)
    return TopologyTerms(
        domain=domain,
        cell=cell,
        cells=cells,
        pods=pods,
        counts=counts,
        max_skew=known.max_skew.copy(),
        min_domains=known.min_domains,
        most=known.most,
    )


class TermLimits(NamedTuple):
    """What the T terms of needs with one fit are, wherever their pods are."""

    flavours: TermFlavours
    #: how many domains a term's topology key has at most, kubernetes.io/hostname left out
    domains: int
    #: [F] int32, the cell of a machine; None if each is one of its own
    cell_of_flavour: Ints | None
    #: how many cells all flavours have
    cells: int
    #: [T] int64
    max_skew: Longs
    #: [T] int64
    min_domains: Longs
    #: [T] int64, pods in a domain
    most: Longs


def _limits(state: CycleState, flavour_fit: FlavourFit) -> TermLimits:
    found = state.term_limits.get(flavour_fit.number)
    if found is None:
        found = state.term_limits[flavour_fit.number] = _find_limits(state, flavour_fit)
    return found


def _find_limits(state: CycleState, flavour_fit: FlavourFit) -> TermLimits:
    apart, keys = flavour_fit.profile.anti_affinity, term_keys(flavour_fit)
    of_flavour = None if HOSTNAME_LABEL in keys else _cell_of_flavour(state, keys)
    skews, no_limit = [term.max_skew for term in flavour_fit.terms], NO_LIMIT // 4
    return TermLimits(
        flavours=_term_flavours(state, flavour_fit),
        domains=max(0 if k == HOSTNAME_LABEL else len(state.columns.label(k).values) for k in keys),
        cell_of_flavour=of_flavour,
        cells=0 if of_flavour is None else int(of_flavour.max(initial=NONE)) + 1,
        max_skew=np.array([*skews, *(no_limit for _ in apart)], np.int64),
        min_domains=np.array([*(t.min_domains for t in flavour_fit.terms), *(1 for _ in apart)]),
        most=np.array([*(no_limit for _ in skews), *(1 for _ in apart)], np.int64),
    )


def _term_flavours(state: CycleState, flavour_fit: FlavourFit) -> TermFlavours:
    """What the need's terms say about all flavours."""
    keys, columns = term_keys(flavour_fit), state.columns

    def domains() -> Ints:
        nowhere = np.full(len(columns), NONE, np.int32)
        return np.stack([nowhere if k == HOSTNAME_LABEL else columns.label(k).codes for k in keys])

    return TermFlavours(
        columns.remember(("term domains", keys), domains),
        np.array([key == HOSTNAME_LABEL for key in keys], np.bool_),
        columns.remember(
            ("term nodes", flavour_fit.profile.fingerprint), lambda: _nodes(state, flavour_fit)
        ),
    )


def _cell_of_flavour(state: CycleState, keys: tuple[str, ...]) -> Ints:
    """[F] int32, equal for flavours with equal domains."""
    columns = state.columns

    def cells() -> Ints:
        codes = np.stack([columns.label(key).codes for key in keys], axis=1)
        _, cell = np.unique(codes, axis=0, return_inverse=True)
        return cell.reshape(-1).astype(np.int32)

    return columns.remember(("cells", keys), cells)


def _cells(known: TermLimits, flavour: Ints) -> tuple[Ints, int]:
    """The cell of each machine with these flavours [M], and how many cells there are."""
    if known.cell_of_flavour is None:
        return np.arange(len(flavour), dtype=np.int32), len(flavour)
    cell = known.cell_of_flavour[flavour]
    if known.cells > len(cell):
        found, places = np.unique(cell, return_inverse=True)
        return places.astype(np.int32), len(found)
    return cell, known.cells


def _nodes(state: CycleState, flavour_fit: FlavourFit) -> Flags:
    """For each term the flavours [T, F] of machines whose domains count for the global minimum."""
    profile, matcher = flavour_fit.profile, state.matcher
    affine = matcher.meeting(profile.requirements, profile.alternatives)
    untainted = matcher.tolerating(profile.tolerations)
    nodes = []
    for term in flavour_fit.terms:
        its = np.ones(len(affine), np.bool_)
        if not term.ignores_node_affinity:
            its &= affine
        if term.honors_node_taints:
            its &= untainted
        nodes.append(its)
    return np.stack([*nodes, *(affine for _ in profile.anti_affinity)])
