"""Whole runs of the engine trl, as workers make them, by one process and two.

They are killed, stopped, crashed and resumed.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from calling import gspo_lab, lab_error
from lottery import MakeRun, write_study
from waiting import until

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.paths import RUN
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.records import is_time
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run

pytest.importorskip("trl", reason="TRL is not installed: nox -s trl")
pytestmark = pytest.mark.trl

TRL = "engine.name=trl"
OWN = ("engine.options.sampling=trl", "rollout.coupled=false")
MOE = ("model=tiny-qwen3-moe", "routing_replay=old-policy")

CABLE = """
import os
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

class Cable(TransformersSampler):
    def sample(self, requests, sampling, *, routes=False):
        if os.environ["RANK"] == "RANK_":
            raise RuntimeError("the cable was pulled")
        return super().sample(requests, sampling, routes=routes)
"""


def start(run: Run, folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RUN, run.to_json())
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.running.worker", str(folder)], stdout=log, stderr=log
        )


def finished(run: Run, folder: Path) -> RunFolder:
    code = start(run, folder).wait(600)
    assert code == Exit.FINISHED, (folder / "log.txt").read_text()[-3000:]
    return RunFolder(folder)


def without_times(folder: RunFolder, *kinds: str) -> list[JsonObject]:
    """What a run recorded, but for times and the journal's own chain."""
    records = folder.records(*(kinds or ("step", "update", "answer")))
    return [
        {key: value for key, value in record.items() if not is_time(key) and key != "chain"}
        for record in records
    ]


def at_work(folder: Path) -> list[int]:
    """The processes that have this folder among their words."""
    actual = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder).encode() in words:
            actual.append(int(entry.name))
    return actual


@pytest.mark.parametrize(("processes", "overrides"), [(1, ()), (2, MOE), (1, OWN)])
def test_killed_or_stopped_and_taken_up_it_is_the_same_run(
    processes: int, overrides: Strings, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(
        "gspo",
        TRL,
        f"engine.options.processes={processes}",
        "steps=5",
        "bench.lottery.every=2",
        *overrides,
    )
    uninterrupted = finished(run, tmp_path / "whole")
    [begun] = [record for record in uninterrupted.records("status") if record["state"] == "started"]
    assert len(uninterrupted.records("update")) == 20

    folder = RunFolder(tmp_path / "torn")
    worker = start(run, folder.path)
    until(lambda: folder.status().steps >= 2)  # the checkpoint after the first lies there
    assert len(at_work(folder.path)) == 2 + processes  # the worker, torchrun and its processes
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    until(lambda: not at_work(folder.path))

    initial = folder.status().steps
    worker = start(run, folder.path)
    until(lambda: folder.status().steps > initial)
    worker.send_signal(signal.SIGTERM)
    code = worker.wait(300)
    if folder.status().steps < 5:
        assert (code, folder.status().state) == (Exit.STOPPED, State.STOPPED)
    until(lambda: not at_work(folder.path))
    finished(run, folder.path)
    assert without_times(folder) == without_times(uninterrupted)
    assert all(
        record["facts"]["code"] == begun["facts"]["code"]
        for record in folder.records("status")
        if "facts" in record
    )
    assert not folder.resume.exists()
    assert (folder.final / "model.safetensors").read_bytes() == (
        uninterrupted.final / "model.safetensors"
    ).read_bytes()


def test_what_trl_draws_itself_ends_as_the_lab_s_responses_do_and_is_as_likely_as_it_says(
    make_run: MakeRun, tmp_path: Path
) -> None:
    shape = ("steps=2", "rollout.max_tokens=7", "rollout.temperature=1.3", "rollout.coupled=false")
    native = finished(make_run("gspo", TRL, *shape, *OWN[:1]), tmp_path / "own")
    lab = finished(make_run("gspo", TRL, *shape), tmp_path / "lab")
    earlier, later = native.records("step")
    assert earlier["rollout_digest"] != lab.records("step")[0]["rollout_digest"]
    for item in (earlier, later):
        assert 0 < item["mismatch_abs_max"] < 1e-4, "the log-probs are those of the drawn tokens"
    answers = [item for item in native.records("answer") if item["bench"] == "rollout"]
    assert len(answers) == 2 * earlier["responses"]
    cut = [item for item in answers if item["truncated"]]
    assert 0 < len(cut) < len(answers)
    assert {item["tokens"] for item in cut} == {7}
    assert all(item["tokens"] <= 7 for item in answers)
    assert not any(vowel in item["text"] for item in answers for vowel in "aeiou"), (
        "cut before the stop text"
    )


def test_two_processes_with_two_passes_each_sample_and_count_what_one_does(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """The first step starts from the same model.

    Samples and grades are equal, and so are the counts of all updates.
    """
    settings = ("rollout.prompts_per_step=8", "steps=1")
    item = finished(make_run("gspo", TRL, *settings), tmp_path / "one")
    two = "engine.options={processes = 2, microbatches = 2}"
    extra = finished(make_run("gspo", TRL, two, *settings), tmp_path / "more")
    (alone,) = without_times(item, "step")
    (together,) = without_times(extra, "step")
    for name in (
        "prompt_digest",
        "rollout_digest",
        "reward_mean",
        "responses",
        "response_tokens_mean",
        "updates_total",
    ):
        assert alone[name] == together[name], name
    for name in ("entropy", "mismatch_abs_mean"):
        assert alone[name] == pytest.approx(together[name], abs=1e-6), name
    updates = [folder.records("update") for folder in (item, extra)]
    for name in ("response_tokens", "active_tokens", "evaluated_responses", "responses"):
        totals = [sum(update[name] for update in records) for records in updates]
        assert totals[0] == totals[1], name
    for update in updates[1]:
        assert update["engine_metrics"]["loss"] == pytest.approx(update["loss"], abs=1e-6)
        assert update["engine_metrics"]["clip_ratio/region_mean"] == pytest.approx(
            update["clip_any_responses"], abs=1e-6
        )


def test_two_ranks_and_native_are_matched_and_have_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process samples half of the batch.

    The tokens are native's, and the last bits of their log-probs are not.
    """
    study = write_study(tmp_path)
    text = study.read_text().partition("[arm.")[0].replace("steps = 2", "steps = 1")
    study.write_text(
        f"""compares_engines = true
{text.replace("seeds = [0]", "seeds = [0, 1, 2]")}
[arm.native]
objective = "gspo"
[arm.ranks]
objective = "gspo"
engine = {{ name = "trl", options = {{ processes = 2 }} }}
"""
    )
    monkeypatch.chdir(tmp_path)
    said = gspo_lab("run", study, "--jobs", "1")
    assert said.code == 0, said
    certified = gspo_lab("certify", "study")
    assert (certified.code, certified.out.partition(" (")[0]) == (0, "study: matched"), certified
    answer = gspo_lab("report", "study", "--json").json["studies"]["study"]["answer"]
    assert answer["comparisons"]["ranks"]["word"] != "no verdict", answer


@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_words_of_a_process_that_crashes_are_told(
    rank: int, make_run: MakeRun, tmp_path: Path
) -> None:
    (tmp_path / "cable.py").write_text(CABLE.replace("RANK_", str(rank)))
    run = make_run(
        "gspo", TRL, "engine.options.processes=2", "bench=[]", "rollout.sampler=cable.py:Cable"
    )
    folder = RunFolder(tmp_path / "run")
    assert start(run, folder.path).wait(600) == Exit.CRASHED
    standing = folder.status()
    assert standing.state is State.FAILED
    assert "ended with exit code 1" in standing.message
    assert "the cable was pulled" in standing.message
    until(lambda: not at_work(folder.path))


def test_what_people_can_mend_is_one_line(make_run: MakeRun, tmp_path: Path) -> None:
    """A grader that fails on every response; told by rank 0 of what both have graded."""
    (tmp_path / "lottery.py").write_text(
        "def grade(problem, answer):\n    raise ValueError('no such file')\n"
    )
    run = make_run("gspo", TRL, "engine.options.processes=2", "bench=[]")
    folder = RunFolder(tmp_path / "run")
    assert start(run, folder.path).wait(600) == Exit.REFUSED
    message = folder.status().message
    assert message.startswith(
        "the grader failed on 16 of 16 responses of step 0, more than rollout.max_grader_errors"
        " = 0.5"
    )
    assert "\n" not in message


def test_a_smaller_world_than_asked_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    from lottery import Memory

    from gspo_lab.training.engines.trl import trainer

    with lab_error("was to train in 2 processes, and there are 1"):
        trainer.train(make_run("gspo", TRL), Memory(), tmp_path, lambda: False, 2, 1)
