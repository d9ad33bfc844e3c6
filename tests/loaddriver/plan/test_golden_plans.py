"""Plans of profiles with dedicated machines stay the same."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from loaddriver.plan.files import plan_bytes
from loaddriver.sizing.inventory import fleet_inventory, on_premise_machines
from tests.loaddriver.load_rig import SHIPPED, SPECIAL, planned

# The first digits of SHA-256 of plan.jsonl and of the provider's inventory, with the shipped seed.
# Whoever means to change a profile or what becomes of it writes the new ones here, and says in the
# changelog that earlier runs cannot be compared with later ones.
DIGESTS = {
    "smoke": ("ae2f37aefa544302", "21de33cc56175fd8"),
    "dev-50": ("82721de2b9d629c7", "3922a0939e434faa"),
    "dev-500": ("e48b83fbd2d829c3", "f3e68b81dfb4dd44"),
    "cr-50": ("16f6aed12c7231b1", "0601e5f86114da8d"),
    "gang-frag-50": ("c7ed1b2d67fb6fe4", "a294112ae6893d13"),
    "knee-50": ("d1f470ca242eed0a", "16f822a5749f6e94"),
    "reclaim-50": ("0e42ba085400348c", "3922a0939e434faa"),
    "oscillation-50": ("ad1fab370373f34b", "3922a0939e434faa"),
    "preemption-50": ("03dcad28629d847b", "c413d91413a8d64a"),
    "fedhpa-3": ("fc8298afe6503e1f", "40e0353096ba70e7"),
    "scarcity-50": ("6cccc1d6cb8f639c", "0d43b48b6cbd6d4a"),
    "compare-50": ("83c1fa643002d902", "593a9f19cd8d31b3"),
    "compare-25": ("3d17222561195dfa", "0bf5f4bee64acef8"),
    "drain-50": ("07433dd88c90cb27", "593a9f19cd8d31b3"),
    "providers-50": ("8e7d29cfc431b202", "42879bcd9533cd13"),
    "shards-grow": ("a14326ae220dad87", "e9ec45c2f139f094"),
    "shards-8": ("3ad7d282b5a4f7d2", "7f4d7fd622947350"),
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize("name", [*SHIPPED, *SPECIAL])
def test_plans_and_fleets_of_dedicated_machines_stay_byte_for_byte(name: str) -> None:
    profile, plan, need = planned(name)
    machines = [*fleet_inventory(profile, need), *on_premise_machines(profile)]
    inventory = msgspec.json.Encoder().encode_lines(machines)
    assert (digest(plan_bytes(plan)), digest(inventory)) == DIGESTS[name]
