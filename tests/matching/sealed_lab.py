"""A study of three matched pairs as workers leave it, sealed and gradable; and a forger's hands, of four skills.

rough    changes bytes
chained  also the digest of every line behind
sealed   also the seal in the journal's last word
sql      changes the database alone
"""

import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from laboratory import recorded_anew
from matched_lab import Lab, Lines, history

from gspo_lab.atomic_files import sums_digest, write_sums
from gspo_lab.cli.verify import graded_again
from gspo_lab.evaluation.run_benchmark import ModelAnswer, graded_record, questions
from gspo_lab.findings.matched import study_certificate
from gspo_lab.journal import Journal, scan
from gspo_lab.matching import Certificate
from gspo_lab.matching.full_verification import verify_record
from gspo_lab.readings import Source
from gspo_lab.records import AnswerRecord, Record, UpdateRecord, from_dict
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import Run
from gspo_lab.tasks import build_task

RUNS = [f"{arm}/s{seed}" for seed in range(3) for arm in ("grpo", "gspo")]
OTHER = {"grpo": "gspo", "gspo": "grpo"}
TASK = build_task("addition", {"train": 200, "held_out": 30}, Path())
PROBLEMS = TASK.problems("held-out")[:20]


def gradable(run: Run) -> list[Record]:
    """`history`, with benchmark answers to problems that are the task's, and the other rule's clips other ones."""
    out: list[Record] = []
    for record in history(run):
        if isinstance(record, UpdateRecord):
            others: dict[str, Any] = {f"would_clip_fraction_tokens_{OTHER[run.arm]}": 0.0}
            record = replace(record, **others)
        if not isinstance(record, AnswerRecord) or record.bench != "sums":
            out.append(record)
        elif record.problem == "held-0":
            out += examined(run, record.step)
    return out


def examined(run: Run, step: int) -> list[AnswerRecord]:
    """As many right as in `matched_lab.exam`."""
    right = 8 + (4 + run.seed if run.arm == "gspo" and step else 0)
    samples = run.settings.bench[0].samples_at(step, run.settings.steps)
    return [
        graded_record(TASK, question, ModelAnswer(said(place < right, place), 3, False), bench="sums", step=step)
        for question in questions("sums", PROBLEMS, samples, run.seed)
        for place in (PROBLEMS.index(question.problem),)
    ]


def said(right: bool, place: int) -> str:
    return f"#{PROBLEMS[place].reference}" if right else "#1000000"


class SealedLab(Lab):
    def __init__(self, folder: Path, bench: str = "") -> None:
        super().__init__(folder, bench=bench, records=gradable)
        start = self.model(self.runs / "_starts" / "start", "a starting model")
        for run in RUNS:
            self.model(self.trained(run), f"what {run} has learned")
            path = self.home / run / "run.json"
            content = json.loads(path.read_text()) | {"warm_start": str(self.runs / "_starts" / "start")}
            path.write_text(json.dumps(content))
            self.set_facts(run, start=start, reference_bands=content["reference_bands"])

    def trained(self, run: str) -> Path:
        return self.home / run / "checkpoints" / "final"

    @staticmethod
    def model(folder: Path, weights: str) -> str | None:
        """A folder with one file of weights, and the digest of its list of files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SHA256SUMS").unlink(missing_ok=True)
        (folder / "model.safetensors").write_text(weights)
        write_sums(folder)
        return sums_digest(folder)

    def journal(self, run: str) -> Path:
        return self.home / run / "journal.jsonl"

    def items(self, run: str) -> Lines:
        return scan(self.journal(run)).items

    def rough(self, run: str, old: str, new: str) -> None:
        text = self.journal(run).read_bytes()
        assert old.encode() in text
        self.journal(run).write_bytes(text.replace(old.encode(), new.encode(), 1))

    def chained(self, run: str, edit: Callable[[Lines], Lines | None]) -> None:
        items = self.items(run)
        items = edit(items) or items
        before = self.journal(run).stat()
        self.journal(run).unlink()
        with Journal(self.home / run) as journal:
            journal.write([from_dict(item) for item in items])
        os.utime(self.journal(run), ns=(before.st_atime_ns, before.st_mtime_ns))

    def sealed(self, run: str, edit: Callable[[Lines], Lines | None]) -> None:
        items = self.items(run)
        recorded_anew(self.home / run, edit(items) or items)

    def everywhere(self, edit: Callable[[Lines], Lines | None], runs: list[str] = RUNS) -> None:
        for run in runs:
            self.sealed(run, edit)

    def sql(self, *statements: str) -> None:
        connection = sqlite3.connect(self.runs / "lab.db")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()

    def certified(self) -> Certificate:
        """What `gspo-lab certify` finds, every answer graded again."""
        ingest(self.runs)
        with Evidence.open(self.runs / "lab.db") as evidence:
            again = graded_again(evidence, "toy", self.runs, 10_000, unsafe=False, chance=random.Random(0))
            return verify_record(evidence, study_certificate(Source(evidence, "toy")), again)


def failed(found: Certificate) -> set[str]:
    """The names of the checks that fail anywhere."""
    return {name for name, states in found.states().items() if states["differs undeclared"]}


def where(items: Lines, kind: str, **fields: Any) -> Iterator[dict[str, Any]]:
    """The records of a kind whose fields are these; at least one is."""
    found = [one for one in items if one["kind"] == kind and all(one.get(key) == v for key, v in fields.items())]
    assert found
    yield from found


def changed(kind: str, change: Callable[[dict[str, Any]], Any], **fields: Any) -> Callable[[Lines], None]:
    """An edit: `change` each record of a kind with these fields, in place."""

    def edit(items: Lines) -> None:
        for one in where(items, kind, **fields):
            change(one)

    return edit


def scaled(kind: str, factor: float, *names: str) -> Callable[[Lines], None]:
    """An edit: columns multiplied."""
    return changed(kind, lambda one: one.update({name: one[name] * factor for name in names}))


def without(kind: str, **fields: Any) -> Callable[[Lines], Lines]:
    """An edit: records left out."""

    def edit(items: Lines) -> Lines:
        gone = list(where(items, kind, **fields))
        return [one for one in items if one not in gone]

    return edit
