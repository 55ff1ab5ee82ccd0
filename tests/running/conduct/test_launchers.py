"""Launchers by name: the built-in table and a plugin's.

Also what people see of jobs that wait or get lost.
"""

import pytest
from calling import lab_error
from counting import Bench

from gspo_lab.running.launch import make_launcher
from gspo_lab.running.launch.local import LocalPool
from gspo_lab.running.plan import plan


def test_the_table_and_its_refusals() -> None:
    assert make_launcher("local", 3) == LocalPool(3)
    with lab_error(
        (r"unknown launcher 'locl' \(did you mean 'local'\?\); known: local, ray, slurm, or 'mod"),
    ):
        make_launcher("locl")
    with lab_error("is no launcher: it has no slots, start, find"):
        make_launcher("slow_queue:NoLauncher")
    with lab_error("no module named 'nowhere'"):
        make_launcher("nowhere:Launcher")
    with lab_error(
        r"--on ray:: an address is missing .* such as ray:10\.0\.0\.1:6379; --on ray f",
    ):
        make_launcher("ray:")
    for address in ("there", ""):
        with lab_error(
            f"--on local:{address}: the launcher 'local' takes no address; use --on lo",
        ):
            make_launcher(f"local:{address}")


@pytest.mark.parametrize(
    ("name", "bug"), [("BrokenAtOnce", ZeroDivisionError), ("BrokenListing", KeyError)]
)
def test_a_bug_in_an_outsider_s_launcher_keeps_its_traceback_and_is_named(
    bench: Bench, name: str, bug: type[Exception]
) -> None:
    on = f"slow_queue:{name}"
    for call in (bench.conduct, lambda on: plan(bench.study(), bench.runs, on=on)):
        with pytest.raises(bug) as raised:
            call(on=on)
        assert raised.value.__notes__ == [f"This is a bug in the launcher '{on}', named by --on."]
    assert not bench.runs.exists()


def test_an_outsider_s_launcher_runs_a_study_and_its_words_are_shown(bench: Bench) -> None:
    bench.seeds = [0]
    _, screen = bench.finish(on="slow_queue:SlowQueue")
    output = [line.split(" ", 1)[1] for line in screen.splitlines() if " a/s0: " in line]
    assert output[:3] == [
        "a/s0: queued on node 0 of far",
        "a/s0: lost on node 0 of far",
        "a/s0: running again on node 0 of far",
    ]
    assert output[-1] == "a/s0: finished at step 4/4"
    assert plan(bench.study(), bench.runs, on="slow_queue:SlowQueue", jobs=3).workers == 3


def test_a_job_that_is_given_up_is_told_and_can_be_taken_up(bench: Bench) -> None:
    bench.seeds = [0]
    result, _ = bench.conduct(on="slow_queue:Unlucky")
    assert result.exit_code == 1
    (line,) = result.failures
    assert line.startswith(
        "b/s0: lost at step 0/4: its launcher has given it up on node 1 of far; the same command"
        " resumes "
    )
    bench.finish()
