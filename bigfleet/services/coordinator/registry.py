"""All rows in memory, with indexes. Changed only by `apply`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.rows import (
    Cluster,
    Domain,
    DomainName,
    Provider,
    Quota,
    Row,
    Shard,
    TermBase,
)


@dataclass(slots=True)
class Load:
    """What is assigned to a shard; `of_type` counts machines by their domains' instance type."""

    machines: int = 0
    domains: int = 0
    clusters: int = 0
    of_type: Counter[str] = field(default_factory=Counter)

    def count(self, domain: Domain, sign: int = 1) -> None:
        """Add `domain`, or subtract it with `sign` -1."""
        self.domains += sign
        self.machines += sign * domain.machines
        self.of_type[domain.instance_type] += sign * domain.machines

    def copy(self) -> Load:
        """An independent copy."""
        return replace(self, of_type=self.of_type.copy())


class Registry:
    """Tables of committed rows."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.shards: dict[str, Shard] = {}
        self.clusters: dict[str, Cluster] = {}
        self.domains: dict[DomainName, Domain] = {}
        self.quotas: dict[tuple[str, str], Quota] = {}
        self.providers: dict[tuple[str, str], Provider] = {}
        self.term_base = 0
        self._loads: defaultdict[str, Load] = defaultdict(Load)
        self._home_loads: defaultdict[str, Load] = defaultdict(Load)
        # By shard and instruction id: domains with an unacknowledged instruction.
        self._unacknowledged: defaultdict[str, dict[str, Domain]] = defaultdict(dict)

    def apply(self, changes: Mapping[str, Row | None]) -> None:
        """Apply committed changes; None deletes a row."""
        for key, row in changes.items():
            old = self.rows.pop(key, None)
            if old is not None:
                self._unindex(old)
            if row is not None:
                self.rows[key] = row
                self._index(row)

    def load(self, shard: str) -> Load:
        """What is assigned to this shard."""
        return self._loads.get(shard) or Load()

    def home_load(self, shard: str) -> Load:
        """What this shard is the home of; without clusters."""
        return self._home_loads.get(shard) or Load()

    def unfinished_domains(self) -> Iterator[Domain]:
        """The domains that a shard has yet to take or release."""
        return (row for rows in self._unacknowledged.values() for row in rows.values())

    def unacknowledged(self, shard: str) -> Mapping[str, Domain]:
        """The domains that this shard has yet to take or release, by instruction id."""
        return self._unacknowledged.get(shard, {})

    def domains_of(self, shard: str) -> Iterator[Domain]:
        """The shard's domains, in any state."""
        return (domain for domain in self.domains.values() if domain.shard == shard)

    def known_shards(self) -> Iterator[Shard]:
        """Shards that have not been removed."""
        return (shard for shard in self.shards.values() if not shard.removed)

    def _index(self, row: Row) -> None:
        match row:
            case Domain():
                self.domains[row.name] = row
                self._loads[row.shard].count(row)
                self._home_loads[row.home].count(row)
                if row.state is not DomainState.OWNED:
                    self._unacknowledged[row.shard][row.instruction_id] = row
            case Cluster():
                self.clusters[row.id] = row
                self._loads[row.shard].clusters += 1
            case Shard():
                self.shards[row.id] = row
            case Quota():
                self.quotas[row.provider, row.region] = row
            case Provider():
                self.providers[row.name, row.region] = row
            case TermBase():
                self.term_base = row.term

    def _unindex(self, row: Row) -> None:
        match row:
            case Domain():
                del self.domains[row.name]
                self._loads[row.shard].count(row, -1)
                self._home_loads[row.home].count(row, -1)
                self._unacknowledged[row.shard].pop(row.instruction_id, None)
            case Cluster():
                del self.clusters[row.id]
                self._loads[row.shard].clusters -= 1
            case Shard():
                del self.shards[row.id]
            case Quota():
                del self.quotas[row.provider, row.region]
            case Provider():
                del self.providers[row.name, row.region]
            case TermBase():
                self.term_base = 0
