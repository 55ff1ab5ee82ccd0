"""Every attack of the list, one by one and eight at a time: none gets out or stays."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attacks import ATTACKS, Attack
from walled import TIGHT, Host

from gspo_lab.sandbox import ExecutionResult, Limits, Program, Sandbox

HONEST = Program("print(int(input()) + 1)")


def limits(attack: Attack) -> Limits:
    return Limits(attack.seconds, TIGHT.memory_bytes, TIGHT.output_bytes, TIGHT.processes, TIGHT.file_bytes)


def planted(host: Host) -> list[Path]:
    places = ["/", "/usr", "/usr/lib", "/etc", "/var/tmp", "/dev", "/tmp", "/run", "/opt", str(host.folder)]
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


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_none_gets_out_and_the_next_program_is_well(attack: Attack, sandbox: Sandbox, host: Host) -> None:
    (outcome,) = sandbox.run(Program(attack.source), [host.stdin], limits(attack))
    assert_held(attack, outcome, host)
    (honest,) = sandbox.run(HONEST, [b"41\n"], TIGHT)
    assert (honest.ending, honest.stdout) == ("finished", b"42\n")


def test_eight_at_a_time_beside_honest_programs(crowded: Sandbox, host: Host) -> None:
    numbers, waiting = [b"%d\n" % number for number in range(5)], []
    with ThreadPoolExecutor(8) as pool:
        for attack in ATTACKS:
            waiting.append(pool.submit(crowded.run, Program(attack.source), [host.stdin], limits(attack)))
            waiting.append(pool.submit(crowded.run, HONEST, numbers, TIGHT))
    outcomes = [future.result() for future in waiting]
    for attack, (outcome,) in zip(ATTACKS, outcomes[::2], strict=True):
        assert_held(attack, outcome, host)
    for honest in outcomes[1::2]:
        assert [(one.ending, one.stdout) for one in honest] == [("finished", b"%d\n" % n) for n in range(1, 6)]


@pytest.mark.usefixtures("no_bubblewrap")
def test_the_attacks_would_get_out_if_nothing_held_them(host: Host) -> None:
    """The list is worth something only if, without walls, its programs report that they got through."""
    through = {"tcp", "udp", "unix sockets", "datagrams of a pair", "read secrets", "shared mappings"}
    through |= {"signals by descriptor owner", "shared memory but for a page", "shared memory of zeros"}
    through |= {"deleted files that are mapped"}
    with Sandbox.open(unsafe=True, slots=1) as bare:
        assert bare.level == "none"
        for attack in ATTACKS:
            if attack.name in through:
                (outcome,) = bare.run(Program(attack.source), [host.stdin], limits(attack))
                assert b"ESCAPED" in outcome.stdout, (attack.name, outcome)
    host.reached.clear()


def test_the_level_says_what_holds(sandbox: Sandbox) -> None:
    assert sandbox.level.startswith("bubblewrap+seccomp+rlimits")
