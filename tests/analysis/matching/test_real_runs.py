"""The certificate over runs of a real engine, before and after tampering with them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from assertions import assert_fields
from laboratory import source
from matched_lab import odd_ones, of
from small_models import small_start

from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.matching import Certificate, first_difference
from gspo_lab.analysis.stats import decide
from gspo_lab.common.reason import Reason
from gspo_lab.common.states import State
from gspo_lab.recording.journal import Journal, scan
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.running.conduct.study_lock import declare
from gspo_lab.running.worker import JournalSink
from gspo_lab.study import Run, aa_study, load_study
from gspo_lab.training.engines.native.build_run import RunComponents, set_up
from gspo_lab.training.engines.native.loop import Loop

STUDY = """
question = "Are real runs matched?"
model = "tiny-qwen3-moe"
steps = 2
seeds = [0]
[task]
name = "dice.py:grade"
problems = "problems.jsonl"
held_out = 0.25
max_tokens = 8
[rollout]
prompts_per_step = 4
group_size = 4
[update]
minibatches = 2
learning_rate = 1e-3
warmup_updates = 1
[record]
rollouts = 1.0
[[bench]]
name = "dice"
problems = 4
every = 1
[arm.grpo]
objective = "grpo"
[arm.grpo-r2]
objective = "grpo"
routing_replay = "old-policy"
[arm.grpo-r3]
objective = "grpo"
routing_replay = "rollout"
[arm.gspo]
objective = "gspo"
"""

GRADER = """
def grade(problem, answer):
    return float(sum(answer.encode()) % 3 == 0)
"""

Tamper = Callable[[Run], Run]
InHand = Callable[[RunComponents], None]


class Room:
    """A folder in which the study's arms are trained one after the other."""

    def __init__(self, folder: Path, against: str | None = None, grader: str = GRADER) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        problems = [
            {"id": f"p{i}", "prompt": "?" * (1 + i % 5) + chr(97 + i), "reference": ""}
            for i in range(24)
        ]
        (folder / "problems.jsonl").write_text(
            "\n".join(json.dumps(problem) for problem in problems)
        )
        (folder / "dice.py").write_text(grader)
        (folder / "study.toml").write_text(STUDY)
        study = load_study(folder / "study.toml", name="dice")
        self.study = study if against is None else replace(aa_study(study, against), name="dice")
        self.locked = declare(self.study, self.runs / "dice").digest

    def train(self, arm: str, run: Run | None = None, in_hand: InHand | None = None) -> None:
        run = replace(run or self.run(arm), declaration=self.locked)
        home = run.folder(self.runs)
        home.mkdir(parents=True)
        (home / "run.json").write_text(json.dumps(run.to_json()))
        parts = set_up(run, small_start(run.settings.model))
        if in_hand is not None:
            in_hand(parts)
        with Journal(home) as journal:
            sink = JournalSink(RunFolder(home), run, journal, 0)
            Loop(run, parts, sink, home).run(lambda: False)
            sink.write_progress(State.FINISHED)

    def run(self, arm: str) -> Run:
        return next(one for one in self.study.runs() if one.arm == arm)

    def certificate(self) -> Certificate:
        ingest(self.runs)
        with source(self.runs / "lab.db", "dice") as studied:
            return study_certificate(studied)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GRPO trained once, untouched, for every test of this file."""
    room = Room(tmp_path_factory.mktemp("dice"))
    room.train("grpo")
    return room.folder


@pytest.fixture
def room(trained: Path, tmp_path: Path) -> Room:
    room = Room(tmp_path)
    shutil.copytree(trained / "runs" / "dice" / "grpo", room.runs / "dice" / "grpo")
    return room


def test_every_arm_of_a_seed_is_matched_whatever_it_replays(room: Room) -> None:
    for arm in ("grpo-r2", "grpo-r3", "gspo"):
        room.train(arm)
    found = room.certificate()
    assert len(found.pairs) == 6
    for pair in found.pairs:
        states = {check.name: check.state for check in pair.checks}
        assert states.pop("settings") == "differs as declared"
        assert states.pop("code") in ("equal", "not recorded")  # as clean as this checkout is
        assert set(states.values()) == {"equal"}, (pair.name, states)
    assert found.ok
    with Evidence.open(room.runs / "lab.db") as evidence:
        parted = first_difference(evidence, "dice/grpo/s0", "dice/gspo/s0")
    effect = next(one for one in parted.later if one.kind != "setting")
    assert effect.where.startswith("step 0, mini-batch 1,")


def test_steps_without_any_reward_are_matched_though_nothing_is_kept_for_replay(
    tmp_path: Path,
) -> None:
    room = Room(tmp_path, grader="def grade(problem, answer):\n    return 0.0\n")
    for arm in ("grpo", "grpo-r2", "grpo-r3"):
        room.train(arm)
    found = room.certificate()
    assert not odd_ones(found)
    with Evidence.open(room.runs / "lab.db") as evidence:
        kept = evidence.rows(
            "SELECT DISTINCT zero_variance_groups, replay_bytes FROM steps WHERE run_id LIKE"
            " '%-r2/%'"
        )
    assert kept == [(1.0, 0)]


def test_an_arm_against_itself_may_sample_apart_and_nothing_else(tmp_path: Path) -> None:
    room = Room(tmp_path, against="grpo")
    for arm in ("grpo-a", "grpo-b"):
        room.train(arm)
    found = room.certificate()
    (pair,) = found.pairs
    states = {check.name: check.state for check in pair.checks if check.name != "code"}
    apart = {name for name, state in states.items() if state == "differs as declared"}
    assert {"first rollout", "first log-probs"} <= apart
    assert apart <= {"first rollout", "first log-probs", "first rewards", "first counts"}
    assert {state for name, state in states.items() if name not in apart} == {"equal"}
    assert found.ok


def _flip_lowest_bit(parts: RunComponents) -> None:
    weight = next(parts.policy.model.parameters()).data
    bits = weight.view(torch.int32)
    bits[0, 0] ^= 1


def test_whatever_is_another_at_one_run_is_named(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of a weight, the order of two prompts, the grader, a key, a flag, a package.

    All are changed at once; the key is undeclared.
    """
    journal = scan(room.runs / "dice" / "grpo" / "s0" / "journal.jsonl").items
    asked = [
        r["problem"]
        for r in journal
        if r.get("bench") == "rollout" and r["step"] == 1 and r["sample"] == 0
    ]

    def swap(text: str) -> str:
        lines = {json.loads(line)["id"]: line for line in text.splitlines()}
        lines[asked[0]], lines[asked[1]] = lines[asked[1]], lines[asked[0]]
        return "\n".join(lines.values())

    edits = {"problems.jsonl": swap, "dice.py": lambda text: text + "# the second version\n"}
    (room.folder / "elsewhere").mkdir()
    for name, edit in edits.items():
        (room.folder / "elsewhere" / name).write_text(edit((room.folder / name).read_text()))
    about = (
        tmp_path / "newer" / "numpy-99.0.dist-info"
    )  # found first on the path, as after an upgrade
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n")
    monkeypatch.syspath_prepend(tmp_path / "newer")
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    run = room.run("gspo")
    update = run.settings.update.model_copy(update={"weight_decay": 0.1})
    run = replace(
        run,
        base=str(room.folder / "elsewhere"),
        settings=run.settings.model_copy(update={"update": update}),
    )
    room.train("gspo", run, in_hand=_flip_lowest_bit)

    found = room.certificate()
    named = {name: of(found, name).parts for name, _ in odd_ones(found)}
    expected = {
        "weights": ("weights",),
        "prompts": ("step 1",),
        "settings": ("update.weight_decay",),
    }
    expected |= {"numerics": ("MKL_NUM_THREADS",), "packages": ("numpy",)}
    assert expected.items() <= named.items()
    assert {"grader", "benchmark grader", "declaration", "identity", "other facts"} <= named.keys()
    assert (
        not {"code", "device", "tokenizer", "chat template", "restarts", "benchmark protocol"}
        & named.keys()
    )
    reasons = [Reason("not-matched", why) for why in found.reasons["gspo"]]
    verdict = decide([0.1, 0.2, 0.3], [0.5, 0.61, 0.72], 0.02, withheld_because=reasons)
    assert (verdict.word, verdict.better) == ("no verdict", None)
    assert "undeclared difference in weights: weights (seed 0)" in str(verdict.because)
    with Evidence.open(room.runs / "lab.db") as evidence:
        parted = first_difference(evidence, "dice/grpo/s0", "dice/gspo/s0")
    prompt = next(one for one in parted.later if one.kind == "prompt")
    assert_fields(prompt, where="step 1", value_a=asked[0], value_b=asked[1])
