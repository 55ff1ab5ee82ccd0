"""Studies of three matched pairs that can be checked by hand, and ways to tamper with them.

`SealedLab` is such a study as workers leave it, sealed and gradable. Four forgers tamper with it:

rough    changes bytes
chained  also the digest of every line behind
sealed   also the seal in the journal's last word
sql      changes the database alone
"""

import hashlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from laboratory import declare, finish, json_of, leave, recorded_anew, source

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.matching import Certificate, Check, Match, accept_mismatch
from gspo_lab.analysis.matching.certificate import verify_record
from gspo_lab.analysis.readings import Source
from gspo_lab.cli.verify import graded_again
from gspo_lab.common.atomic_files import sums_digest, write_sums
from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.recording.journal import Journal, from_dict, scan
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.study import Run, load_study
from gspo_lab.tasks import build_task
from gspo_lab.tasks.evaluation.run_benchmark import ModelAnswer, graded_record, questions

TOML = """
question = "Are the two arms matched?"
{top}
model = "tiny-qwen3"
task = {{ name = "addition", train = 200, held_out = 30 }}
steps = 4
seeds = 3
[update]
minibatches = 2
[rollout]
prompts_per_step = 4
group_size = 2
coupled = {coupled}
[record]
rollouts = 1.0
[[bench]]
name = "sums"
problems = 20
every = 2
{bench}
[arm.grpo]
objective = "grpo"
{grpo}
[arm.gspo]
objective = "gspo"
{gspo}
{study}
"""

FACTS: JsonObject = {
    "gspo_lab": "0.1.0",
    "code": "0123abc",
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "python": "3.11.7",
    "device": "a small CPU",
    "threads": 1,
    "flags": {"OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    "weights": "aa" * 32,
    "tokenizer": "bb" * 32,
    "chat_template": None,
    "grader": "addition/1",
    "parameters": 625024,
}

Lines = list[JsonObject]


class Lab:
    """A runs folder with one study, `toy`."""

    def __init__(
        self,
        folder: Path,
        *,
        grpo: str = "",
        gspo: str = "",
        coupled: str = "true",
        study: str = "",
        top: str = "",
        bench: str = "",
        records: Callable[[Run], list[Record]] | None = None,
    ) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.home = self.runs / "toy"
        toml = folder / "toy.toml"
        given = {
            "grpo": grpo,
            "gspo": gspo,
            "coupled": coupled,
            "study": study,
            "top": top,
            "bench": bench,
        }
        toml.write_text(TOML.format(**given))
        self.study = load_study(toml)
        locked = json_of(declare(self.study, self.runs) / "study.json")["digest"]
        for run in self.study.runs():
            run = replace(run, declaration=locked)
            finish(leave(run, self.runs, (records or history)(run)), 4, at=2000.0)
        ingest(self.runs)

    @classmethod
    def copied(cls, whole: Path, folder: Path) -> Self:
        """A copy of a lab in another folder, made in no time."""
        shutil.copytree(whole / "runs", folder / "runs")
        lab = cls.__new__(cls)
        lab.folder = folder
        lab.runs = folder / "runs"
        lab.home = lab.runs / "toy"
        return lab

    def edit_json(self, name: str, edit: Callable[[JsonObject], object]) -> None:
        """Change a JSON file under the study's folder by hand, as a tamperer would."""
        path = self.home / name
        content = json_of(path)
        edit(content)
        path.write_text(json.dumps(content))
        ingest(self.runs)

    def edit_journal(self, run: str, edit: Callable[[Lines], Lines | None]) -> None:
        """Change the lines of a run's journal and all its digests by hand.

        `edit` works in place or returns other lines.
        """
        lines = scan(self.home / run / "journal.jsonl").items
        recorded_anew(self.home / run, edit(lines) or lines)
        ingest(self.runs)

    def set_facts(self, run: str, **changes: Any) -> None:
        """Change what the worker of a run found out about itself."""

        def edit(lines: Lines) -> None:
            lines[0]["facts"] = {**lines[0]["facts"], **changes}

        self.edit_journal(run, edit)

    def set_of(self, run: str, kind: str, change: JsonObject, **where: Any) -> None:
        """Set fields of all records of a kind that match `where`.

        At least one must match.
        """

        def edit(lines: Lines) -> None:
            found = [
                line
                for line in lines
                if line["kind"] == kind and all(line.get(k) == v for k, v in where.items())
            ]
            assert found
            for line in found:
                line.update(change)

        self.edit_journal(run, edit)

    def certificate(self) -> Certificate:
        with source(self.runs / "lab.db") as studied:
            return study_certificate(studied)

    def accept(self, reason: str) -> Certificate:
        """Let the mismatches that are there now stand."""
        with Evidence.open(self.runs / "lab.db") as evidence:
            return accept_mismatch(evidence, Source(evidence, "toy").declaration, reason)

    def verdict(self) -> JsonObject:
        """What is said of gspo against grpo."""
        with source(self.runs / "lab.db") as studied:
            found = decision(studied).verdicts["gspo"]
        return {"word": found.word, "better": found.better, "reason": found.because}


def of(found: Certificate, name: str, seed: int = 0) -> Check:
    """One check of the pair of a seed."""
    return next(
        check
        for pair in found.pairs
        if pair.seed == seed
        for check in pair.checks
        if check.name == name
    )


def odd_ones(found: Certificate) -> set[tuple[str, int]]:
    """(check, seed) of every undeclared difference."""
    return {
        (check.name, pair.seed)
        for pair in found.pairs
        for check in pair.checks
        if check.state.endswith("undeclared")
    }


def ids(seed: int, step: int) -> list[str]:
    return [f"train-{seed}-{step}-{place}" for place in range(4)]


def rolling(seed: int, order: Callable[[int], Sequence[str]] | None = None) -> list[str]:
    """The rolling digests of the prompt ids of steps 0 to 3."""
    out = []
    last = ""
    for step in range(4):
        asked = ids(seed, step) if order is None else order(step)
        last = hashlib.sha256("\x1f".join([last, *asked]).encode()).hexdigest()
        out.append(last)
    return out


def history(run: Run) -> list[Record]:
    """What a worker leaves: equal for both arms up to the first update, then each arm's own."""
    records: list[Record] = [
        RunStatus(
            state="started",
            step=0,
            at=1000.0 + run.seed,
            run=run.id,
            declaration=run.declaration,
            facts=FACTS,
        ),
        *exam(run, 0),
    ]
    digests = rolling(run.seed)
    for step in range(4):
        who = "both" if step == 0 else run.arm
        for minibatch in range(2):
            moved = 0.25 * minibatch
            would_clip: JsonObject = {
                f"would_clip_fraction_tokens_{rule}": moved / 2 for rule in ("grpo", "gspo")
            }
            records.append(
                UpdateRecord(
                    step=step,
                    minibatch=minibatch,
                    loss=(
                        0.0
                        if minibatch == 0 and step == 0
                        else len(run.arm) / 8 + (0.5 if run.arm == "gspo" else 0)
                    ),
                    log_ratio_max_abs=moved,
                    grad_norm=1.0 + run.seed + step / 8 + minibatch / 64,
                    learning_rate=1e-4 * min(1.0, (2 * step + minibatch + 1) / 8),
                    response_tokens=16,
                    clipped_tokens=int(16 * moved / 2),
                    clip_fraction_tokens=moved / 2,
                    **would_clip,
                )
            )
        records.append(
            StepRecord(
                step=step,
                prompts=4,
                responses=8,
                reward_mean=0.5 if step == 0 else 0.625,
                reward_std=0.25,
                zero_variance_groups=0.0,
                grader_errors=0,
                response_tokens_mean=4.0,
                prompts_total=4 * (step + 1),
                tokens_sampled_total=32 * (step + 1),
                tokens_trained_total=32 * (step + 1),
                updates_total=2 * (step + 1),
                flops_total=1e6 * (step + 1),
                seconds_step=0.5,
                device_seconds_total=0.5 * (step + 1),
                prompt_digest=digests[step],
                rollout_digest=f"tokens {who} {run.seed} {step}",
                logprob_digest=f"log-probs {who} {run.seed} {step}",
            )
        )
        for place, problem in enumerate(ids(run.seed, step)):
            for sample in range(2):
                right = int(sample == 0 or (place == 0 and step > 0))  # 4 of 8, and 5 of 8 later
                records.append(
                    answer(
                        step, "rollout", problem, sample, f"{problem} said {who} {sample}", right
                    )
                )
        if step in (1, 3):
            records += exam(run, step + 1)
    return records


def exam(run: Run, step: int) -> list[Record]:
    """Of 20 problems 8 are correct at the start and for grpo.

    gspo gets 4, 5 and 6 more, seed by seed.
    """
    right = 8 + (4 + run.seed if run.arm == "gspo" and step else 0)
    return [
        answer(step, "sums", f"held-{i}", 0, f"{i}: {i < right}", int(i < right)) for i in range(20)
    ]


def answer(
    step: int, bench: str, problem: str, sample: int, text: str, correct: int
) -> AnswerRecord:
    return AnswerRecord(
        step=step,
        bench=bench,
        problem=problem,
        sample=sample,
        prompt=f"{problem}?",
        reference="1",
        text=text,
        tokens=3,
        truncated=0,
        reward=float(correct),
        correct=correct,
        grader="addition/1",
    )


RUNS = [f"{arm}/s{seed}" for seed in range(3) for arm in ("grpo", "gspo")]
OTHER = {"grpo": "gspo", "gspo": "grpo"}
TASK = build_task("addition", {"train": 200, "held_out": 30}, Path())
PROBLEMS = TASK.problems("held-out")[:20]


def gradable(run: Run) -> list[Record]:
    """`history`, with benchmark answers to the task's own problems.

    The other rule's clips are other ones.
    """
    out: list[Record] = []
    for record in history(run):
        if isinstance(record, UpdateRecord):
            others: JsonObject = {f"would_clip_fraction_tokens_{OTHER[run.arm]}": 0.0}
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
        graded_record(
            TASK,
            question,
            ModelAnswer(said(place < right, place), 3, False),
            bench="sums",
            step=step,
        )
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
            content = json_of(path) | {"warm_start": str(self.runs / "_starts" / "start")}
            path.write_text(json.dumps(content))
            self.set_facts(run, start=start, reference_bands=content["reference_bands"])

    def trained(self, run: str) -> Path:
        return self.home / run / "checkpoints" / "final"

    @staticmethod
    def model(folder: Path, weights: str) -> OptionalText:
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
        ingest(
            self.runs
        )  # later it would put back what a statement has changed, for the copies are other files
        connection = sqlite3.connect(self.runs / "lab.db")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()

    def certified(self) -> Certificate:
        """What `gspo-lab certify` finds, every answer graded again."""
        ingest(self.runs)
        with Evidence.open(self.runs / "lab.db") as evidence:
            again = graded_again(
                evidence, "toy", self.runs, 10_000, unsafe=False, chance=random.Random(0)
            )
            return verify_record(evidence, study_certificate(Source(evidence, "toy")), again)


def failed(found: Certificate) -> set[str]:
    """The names of the checks that fail anywhere."""
    return {name for name, states in found.states().items() if states[Match.UNDECLARED]}


def where(items: Lines, kind: str, **fields: Any) -> Iterator[JsonObject]:
    """The records of a kind whose fields are these; at least one is."""
    found = [
        one
        for one in items
        if one["kind"] == kind and all(one.get(key) == v for key, v in fields.items())
    ]
    assert found
    yield from found


def changed(
    kind: str, change: Callable[[JsonObject], Any], **fields: Any
) -> Callable[[Lines], None]:
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
