"""`bigfleet checkpoint` and `bigfleet replay` as users call them, on a running shard."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from bigfleet.__main__ import _parser
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineState
from tests.support.shard_rig import cycles, machine, need, shard

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "replay.md"


async def run(*arguments: str | Path) -> None:
    """One command, in this process."""
    flags = _parser().parse_args([str(each) for each in arguments])
    await flags.build(flags)(asyncio.Event())


async def test_what_a_running_shard_saved_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its decision, the difference that a change makes, and decisions of two runs compared."""
    provider = MemoryProvider([machine(f"m-{n}", MachineState.SPECULATIVE) for n in range(2)])
    saved, written = tmp_path / "saved", tmp_path / "decisions.json"
    async with shard(provider, tmp_path, actuation_paused=True) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(2))
        await cycles(rig, 1)
        await run("checkpoint", "--shard", rig.address, "--insecure", saved)
    capsys.readouterr()
    await run("replay", saved, "--decisions", written)
    assert re.search(r"Provision m6i.xlarge +2\n", capsys.readouterr().out)
    await run("replay", saved, "--against", written)
    assert "The decisions are the same." in capsys.readouterr().out
    await run("replay", saved, "--price", "m6i.xlarge=x2", "--fit", "east", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["difference"]["dollars_per_hour"] == pytest.approx(0.4)
    assert told["fit"] == {"need": "east", "more": 0}
    await run("replay", saved, "--more-machines", "m6i.xlarge=1", "--fit", "east")
    assert "0 more needs like east fit." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--price", "m6i"), "--price: 'm6i' is not TYPE=VALUE"),
        (("--price", "m6i=dear"), "is not a factor such as x2"),
        (("--more-machines", "m6i=-1"), "is not a number from 1"),
        (("--price", "a=2", "--price", "a=3"), "names an instance type twice"),
    ],
)
async def test_a_change_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """It names the option and its form."""
    with pytest.raises(InvalidInput, match=words):
        await run("replay", tmp_path / "saved", *arguments)


def test_the_guide_has_every_option_and_the_help_fits_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing can be changed that the guide does not explain."""
    guide = GUIDE.read_text()
    for command in ("replay", "checkpoint"):
        with pytest.raises(SystemExit):
            _parser().parse_args([command, "--help"])
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        for option in set(re.findall(r"--[a-z-]+", shown)) - {"--help", "--identity", "--insecure"}:
            assert option in guide, option
