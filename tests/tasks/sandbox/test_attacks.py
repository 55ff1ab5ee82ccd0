"""Every attack of the list, one after the other and seven at a time: none gets out or stays."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from attacks import ATTACKS, Attack, program
from walled import TIGHT, Host, neighbours

from gspo_lab.tasks.sandbox import ExecutionResult, Limits, Sandbox


def limits(seconds: float) -> Limits:
    return replace(TIGHT, seconds=seconds)


def planted(host: Host) -> list[Path]:
    places = [
        "/",
        "/usr",
        "/usr/lib",
        "/etc",
        "/var/tmp",
        "/dev",
        "/tmp",
        "/run",
        "/opt",
        str(host.folder),
    ]
    return [path for place in places for path in Path(place).glob("planted*")]


def assert_held(attack: Attack, outcome: ExecutionResult, host: Host) -> None:
    assert outcome.ending in attack.endings, (attack.name, outcome)
    assert b"ESCAPED" not in outcome.stdout, (attack.name, outcome.stdout)
    if outcome.ending == "finished":
        assert outcome.stdout == b"held\n", (attack.name, outcome)
    assert len(outcome.stdout) <= TIGHT.output_bytes
    assert len(outcome.stderr) <= TIGHT.output_bytes
    assert outcome.seconds_wall < 10 * attack.seconds + 5, "however busy the machine is"
    assert not host.reached
    token = host.folder / "token"
    assert token.read_text() == str(host.facts["secret"])[::-1]
    assert token.stat().st_mode & 0o777 == 0o666
    assert Path(str(host.facts["shared"])).read_text() == token.read_text()
    assert not planted(host)


@pytest.mark.parametrize("seconds", sorted({attack.seconds for attack in ATTACKS}))
def test_none_gets_out_and_the_next_program_is_well(
    seconds: float, sandbox: Sandbox, host: Host
) -> None:
    """Attacks with the same limits run one after the other in one sandbox.

    An honest program runs after each.
    """
    attacks = [attack for attack in ATTACKS if attack.seconds == seconds]
    inputs = [host.stdin(name) for attack in attacks for name in (attack.name, "honest")]
    outcomes = sandbox.run(program(attacks), inputs, limits(seconds))
    for attack, outcome, honest in zip(attacks, outcomes[::2], outcomes[1::2], strict=True):
        assert_held(attack, outcome, host)
        assert (honest.ending, honest.stdout) == ("finished", b"%d\n" % (os.getpid() + 1)), (
            attack.name
        )


def test_seven_at_a_time_beside_an_honest_program(crowded: Sandbox, host: Host) -> None:
    waiting = []
    with ThreadPoolExecutor(7) as pool:
        for attack in ATTACKS:
            stdin = host.stdin(attack.name)
            waiting.append(
                pool.submit(crowded.run, program([attack]), [stdin], limits(attack.seconds))
            )
        beside = neighbours(crowded, waiting)
    for attack, attacked in zip(ATTACKS, waiting, strict=True):
        assert_held(attack, attacked.result()[0], host)
    assert {(outcome.ending, outcome.stdout) for outcome in beside} == {("finished", b"42\n")}


@pytest.mark.usefixtures("no_bubblewrap")
def test_the_attacks_would_get_out_if_nothing_held_them(host: Host) -> None:
    """Without isolation the programs of the list report that they got through.

    Otherwise the list would prove nothing.
    """
    through = {
        "tcp",
        "udp",
        "unix sockets",
        "datagrams of a pair",
        "read secrets",
        "shared mappings",
    }
    through |= {
        "signals by descriptor owner",
        "shared memory but for a page",
        "shared memory of zeros",
    }
    through |= {"deleted files that are mapped"}
    with Sandbox.open(unsafe=True, slots=1) as bare:
        assert bare.level == "none"
        for attack in ATTACKS:
            if attack.name in through:
                (outcome,) = bare.run(
                    program([attack]), [host.stdin(attack.name)], limits(attack.seconds)
                )
                assert b"ESCAPED" in outcome.stdout, (attack.name, outcome)
    host.reached.clear()


def test_the_level_says_what_holds(sandbox: Sandbox) -> None:
    assert sandbox.level.startswith("bubblewrap+seccomp+rlimits")
