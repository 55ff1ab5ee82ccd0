"""A plugin's engine: one file beside a study, run by the command.

It has options and declared capabilities.
"""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import gspo_lab, lab_error
from laboratory import json_of

from gspo_lab.study import load_study
from gspo_lab.training.engines.check import check_engine

TOY = '''
"""A toy: what it reports follows from its learning rate, and it knows no other setting."""
from pathlib import Path

from gspo_lab.training.engines.base import Capabilities
from gspo_lab.training.engines.facts import facts
from gspo_lab.recording.records import AnswerRecord, RunStatus, StepRecord
from gspo_lab.tasks import build_task


class Toy:
    capabilities = Capabilities(
        settings=("steps", "update.learning_rate", "bench"),
        records={"reward_mean": "", "entropy": "in bits, not nats"},
    )

    def __init__(self, *, luck: float, label: str = "none"):
        self.luck = luck

    def train(self, run, sink, folder, stop):
        task = build_task(run.settings.task.name, run.settings.task.options, Path(run.base))
        known = facts(task=task, capabilities=self.capabilities)
        sink.write([RunStatus(state="started", step=0, facts=known)])
        for step in range(run.settings.steps + 1):
            share = self.luck + run.settings.update.learning_rate * step
            for bench in run.settings.bench:
                problems = task.problems("held-out")[: bench.problems]
                sink.write([
                    AnswerRecord(step=step, bench=bench.name, problem=problem.id, sample=0, text="?",
                                 reward=float(i < share * 10), correct=int(i < share * 10))
                    for i, problem in enumerate(problems)
                ])
            if step < run.settings.steps:
                sink.write([StepRecord(step=step, prompts=4, responses=32, reward_mean=share, entropy=1.0)])
        return True
'''  # noqa: E501

STUDY = """
question = "Does a toy learn faster at a higher rate?"
task = "addition"
steps = 2
seeds = [0]
[engine]
name = "toy.py:Toy"
[engine.options]
luck = 0.2
[[bench]]
name = "sums"
problems = 10
[arm.slow.update]
learning_rate = 0.1
[arm.fast.update]
learning_rate = 0.3
"""

Check = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "rates.toml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def check(folder: Path) -> Check:
    def one(*overrides: str) -> None:
        study = load_study(folder / "rates.toml", overrides=overrides)
        for arm in study.arms.values():
            check_engine(arm.name, arm.settings, folder)

    return one


def test_an_outsiders_engine_trains_through_the_command(folder: Path) -> None:
    process = gspo_lab("run", "rates.toml", "--jobs", "1")
    assert process.code == 0, process
    declared = json_of(folder / "runs/rates/study.json")
    assert declared["arms"]["slow"]["settings"]["engine"] == {
        "name": "toy.py:Toy",
        "options": {"luck": 0.2},
    }
    with sqlite3.connect(folder / "runs/lab.db") as database:
        rewards = dict(
            database.execute("select run_id, reward_mean from steps where step = 1").fetchall()
        )
        (facts,) = database.execute(
            "select facts from statuses where state = 'started' and run_id like '%fast%'"
        ).fetchone()
        right = dict(
            database.execute(
                "select run_id, sum(correct) from answers where step = 2 group by run_id"
            ).fetchall()
        )
    assert rewards == {"rates/slow/s0": pytest.approx(0.3), "rates/fast/s0": pytest.approx(0.5)}
    assert right == {"rates/slow/s0": 4, "rates/fast/s0": 8}
    rows = json.loads(facts)
    assert rows["definitions"] == {"entropy": "in bits, not nats"}
    assert rows["grader"].startswith("addition")
    assert {"code", "packages", "device", "python", "flags"} < rows.keys()
    assert "weights" not in rows
    assert (folder / "reports/rates.html").is_file()


def test_a_study_that_varies_what_the_engine_cannot_is_refused_before_it_begins(
    folder: Path,
) -> None:
    refused = gspo_lab("run", "rates.toml", "--set", "arm.fast.update.epochs=2")
    assert refused.code == 2
    assert (
        "arm.fast: the engine 'toy.py:Toy' would ignore update.epochs = 2 (default: 1)"
        in refused.err
    )
    assert "it can vary bench, steps, update.learning_rate" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("override", "why"),
    [
        (
            "update.minibatches=2",
            r"arm\.slow: .* would ignore update.minibatches = 2 \(default: 4\)",
        ),
        ("arm.fast.objective=gspo", r"arm\.fast: .* would ignore objective.clip_high = 0.0004"),
        ("arm.fast.clip=calibrated", "would ignore objective.clip = 'calibrated'"),
        (
            "engine.options.lukc=1",
            r"engine 'toy.py:Toy': unknown option 'lukc' \(did you mean 'luck'\?\)",
        ),
        ("engine.options={}", r"the option 'luck' is missing; set it under \[engine.options\]"),
        ("engine=toy.py:Toi", "'toy.py' has no 'Toi'"),
    ],
)
def test_what_an_engine_cannot_do_is_one_line(check: Check, override: str, why: str) -> None:
    check()
    with lab_error(why) as refusal:
        check(override)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("capabilities", "why"),
    [
        (
            "Capabilities(settings=('update.learning_rat', 'bench'))",
            r"is no key of a study \(did you mean 'update.learn",
        ),
        (
            "Capabilities(records={'reward_men': ''})",
            r"is no column .* \(did you mean 'reward_mean'\?\)",
        ),
        ("{'steps'}", "its capabilities are no gspo_lab.training.engines.base.Capabilities"),
    ],
)
def test_capabilities_that_cannot_be_are_told(
    folder: Path, check: Check, capabilities: str, why: str
) -> None:
    begin, _, remainder = TOY.partition("    capabilities = Capabilities(")
    ending = remainder.partition(")\n\n")[2]
    (folder / "toy.py").write_text(f"{begin}    capabilities = {capabilities}\n{ending}")
    with lab_error(why):
        check()


def test_calibration_needs_an_engine_that_records_every_move(folder: Path, check: Check) -> None:
    text = TOY.replace('"bench"),', '"bench", "objective"),')
    (folder / "toy.py").write_text(text)
    with lab_error("does not record response_detail"):
        check("arm.fast.clip=calibrated")
    (folder / "other.py").write_text(text.replace("records={", 'records={"response_detail": "", '))
    check("arm.fast.clip=calibrated", "engine.name=other.py:Toy")


def test_the_native_engine_does_everything_and_takes_no_options(check: Check) -> None:
    check("engine=native", "update.epochs=2", "arm.fast.objective=gspo", "arm.fast.clip=calibrated")
    with lab_error("engine 'native': unknown option 'luck'; known: none"):
        check("engine.name=native")
    with lab_error("unknown engine 'nativ'"):
        check("engine=nativ")


def test_an_engine_without_options_is_declared_by_its_name_alone(folder: Path) -> None:
    for inputs in ("engine=native", "engine={name='native'}"):
        study = load_study(folder / "rates.toml", overrides=[inputs])
        settings = study.arms["slow"].settings
        assert_fields(settings.engine, name="native", options={})
        assert settings.model_dump(mode="json")["engine"] == "native"
        assert type(settings).model_validate(settings.model_dump(mode="json")) == settings
