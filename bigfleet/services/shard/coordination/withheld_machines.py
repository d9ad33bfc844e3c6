"""How many more machines of a quota would serve a shortfall, once the quota is used up. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.engine.explain.shortfall_report import ShortfallGroup
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.report_limits import MAX_QUOTA_SHORTAGES
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.decide.quotas import quota_key
from bigfleet.services.shard.records.views import FreeMachines


class WithheldMachines:
    """The speculative machines that a shard may not purchase, because it has used up its quota: its
    own ones, and those that others could give it. `names` are the providers' own names.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        withheld: Sequence[FreeMachines],
        flavours: Sequence[Flavour],
    ) -> None:
        self._names = names
        # The inventory may have renumbered its flavours since the decision with `flavours`.
        self._machines = [
            each
            for each in withheld
            if each.number < len(flavours) and flavours[each.number] == each.flavour
        ]

    def lacking_to(self, short: ShortfallGroup) -> list[wire.QuotaShortage]:
        """By how many machines each quota would have to be larger; none unless it escalates. Of a
        need confined to one domain: for one gang in the domain where that takes fewest.
        """
        if not short.escalates or not self._machines:
            return []
        if short.profile.same_key is None:
            found = {key: _number(pools, short.count) for key, pools in self._by_quota(short)}
        else:
            found = dict(self._of_one_domain(short, short.profile.same_key))
        return [
            wire.QuotaShortage(provider=key.provider, region=key.region, machines=machines)
            for key, machines in sorted(found.items())[:MAX_QUOTA_SHORTAGES]
        ]

    def _by_quota(self, short: ShortfallGroup) -> Iterator[tuple[QuotaKey, list[tuple[int, int]]]]:
        pools: defaultdict[QuotaKey, list[tuple[int, int]]] = defaultdict(list)
        for each in self._machines:
            if pods := int(short.pods_per_machine[each.number]):
                pools[quota_key(each.flavour, self._names)].append((pods, each.speculative))
        yield from pools.items()

    def _of_one_domain(
        self, short: ShortfallGroup, same_key: str
    ) -> Iterator[tuple[QuotaKey, int]]:
        one_gang = -(-short.count // short.needs)
        pools: defaultdict[tuple[QuotaKey, str], list[tuple[int, int]]] = defaultdict(list)
        for each in self._machines:
            pods = int(short.pods_per_machine[each.number])
            if pods and each.domain.key == same_key:
                where = quota_key(each.flavour, self._names), each.domain.value
                pools[where].append((pods, each.speculative))
        fewest: dict[QuotaKey, int] = {}
        for (key, _), of_domain in pools.items():
            if sum(pods * machines for pods, machines in of_domain) >= one_gang:
                machines = _number(of_domain, one_gang)
                fewest[key] = min(machines, fewest.get(key, machines))
        yield from fewest.items()


def _number(pools: Sequence[tuple[int, int]], pods: int) -> int:
    """How many machines hold so many pods, the largest first; all of them if they are too few.
    `pools` has the pods per machine and the number of machines.
    """
    used = 0
    for each_holds, machines in sorted(pools, reverse=True):
        takes = min(machines, -(-pods // each_holds))
        used, pods = used + takes, pods - takes * each_holds
        if pods <= 0:
            break
    return used
