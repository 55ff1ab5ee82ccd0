"""A `runs` folder as conductor and workers leave it, without any training.

Its files and journals are real.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.plain_data import OptionalFloat, OptionalInt, Strings
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest


@dataclass
class Lab:
    runs: Path

    @property
    def db(self) -> Path:
        return self.runs / "lab.db"

    @contextmanager
    def opened(self) -> Iterator[Evidence]:
        """All that the folders hold."""
        ingest(self.runs)
        with Evidence.open(self.db) as evidence:
            yield evidence

    def declare(
        self, study: str, arms: Strings = ("grpo", "gspo"), seeds: Iterable[int] = (0, 1)
    ) -> list[str]:
        """study.json and every run.json; the runs' ids."""
        folder = self.runs / study
        folder.mkdir(parents=True, exist_ok=True)
        table = {arm: {"declared": ["objective.preset"], "settings": {"steps": 4}} for arm in arms}
        content = {
            "name": study,
            "question": f"what of {study}?",
            "seeds": list(seeds),
            "arms": table,
            "digest": "d",
        }
        (folder / "study.json").write_text(json.dumps(content))
        return [self.plan(study, arm, seed) for arm in arms for seed in seeds]

    def plan(self, study: str, arm: str, seed: int) -> str:
        run_id = f"{study}/{arm}/s{seed}"
        folder = self.runs / run_id
        folder.mkdir(parents=True, exist_ok=True)
        specification = {
            "study": study,
            "arm": arm,
            "seed": seed,
            "settings": {"steps": 4, "model": "tiny"},
            "declared": ["objective.preset"],
            "reference_bands": {"grpo": [0.2, 0.27], "gspo": [3e-4, 4e-4]},
            "base": ".",
        }
        (folder / "run.json").write_text(json.dumps(specification))
        return run_id

    def write(self, run_id: str, *records: Record, evaluation: str = "") -> None:
        folder = (
            self.runs / run_id / "evaluations" / evaluation if evaluation else self.runs / run_id
        )
        folder.mkdir(parents=True, exist_ok=True)
        with Journal(folder) as sink:
            sink.write(records)

    def train(self, run_id: str, steps: int = 4, finish: bool = True) -> None:
        """The whole journal of a run: the start, an evaluation before and after, the steps."""
        self.write(
            run_id,
            RunStatus(state="started", step=0, at=100.0, facts={"device": "cpu"}),
            *answers(0, [0, 0]),
        )
        for step in range(steps):
            self.write(run_id, *step_records(step))
        self.write(run_id, *answers(steps, [1, 0]))
        if finish:
            self.write(run_id, RunStatus(state="finished", step=steps, at=200.0))

    def ask(self, run_id: str, evaluation: str, *records: Record, **declared: Any) -> None:
        """A later evaluation of a run or a subject, declared and answered."""
        folder = self.runs / run_id / "evaluations" / evaluation
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "evaluation.json", {"bench": "addition", **declared})
        self.write(run_id, *records, evaluation=evaluation)

    def subject(self, name: str, kind: str = "server") -> str:
        """A model or a server that was asked without a run; its id."""
        folder = self.runs / "_subjects" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "subject.json", {"kind": kind, "name": f"some/{name}"})
        return f"_subjects/{name}"

    def regrade(self, run_id: str, *grades: Record, evaluation: str = "") -> None:
        where = (
            self.runs / run_id / "evaluations" / evaluation if evaluation else self.runs / run_id
        )
        (where / "grades").mkdir(parents=True, exist_ok=True)
        with Journal(where / "grades") as sink:
            sink.write(grades)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.db)) as connection, connection:
            return connection.execute(sql, values).fetchall()

    def dump(self, db: Path | None = None) -> list[str]:
        """Everything in the database as SQL, in an order that ignores the order of insertion."""
        connection = sqlite3.connect(db or self.db)
        try:
            return sorted(connection.iterdump())
        finally:
            connection.close()


def step_records(step: int, *, reward: OptionalFloat = None, updates: int = 2) -> list[Record]:
    out: list[Record] = [
        UpdateRecord(
            step=step,
            minibatch=minibatch,
            loss=step + minibatch / 10,
            response_tokens=100,
            clipped_tokens=5 * minibatch,
            clip_fraction_tokens=0.05 * minibatch,
            log_ratio_quantiles_tokens=[0.0, 0.5, 1.0],
        )
        for minibatch in range(updates)
    ]
    return [
        *out,
        StepRecord(
            step=step, prompts=2, responses=4, reward_mean=step / 10 if reward is None else reward
        ),
    ]


def answers(
    step: int, correct: Iterable[OptionalInt], bench: str = "addition", samples: int = 1
) -> list[Record]:
    """One answer per entry: problem p0 gets the first `samples` of them, p1 the next, ..."""
    return [
        AnswerRecord(
            step=step,
            bench=bench,
            problem=f"p{index // samples}",
            sample=index % samples,
            text=f"answer {index}",
            tokens=5,
            truncated=0,
            correct=value,
            reward=None if value is None else float(value),
            error="grader timed out" if value is None else None,
        )
        for index, value in enumerate(correct)
    ]
