"""From a database to a report: time and size, and how peers serve the same series.

    python benchmarks/report.py                     # 20 runs x 10,000 steps x 20 metrics
    python benchmarks/report.py --large             # 100 runs x 10,000 steps x 40 metrics
    python benchmarks/report.py --peers PYTHON      # of tensorboard, trackio and mlflow
    python benchmarks/report.py --profile           # a profile of our time

The project's own store makes the study's folders and database in a temporary folder (or in
--folder). Half of the metrics are in `steps`, half in `updates` with two mini-batches a step, so 20
metrics are 30 numbers a step. Prompt digests and evaluations exist as in a real study. A fresh
process then makes the three files from the database; the best of three counts. Peers get one number
per metric and step (`report_peers.py`).
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
MINIBATCHES = 2
EVALUATIONS = 20
PROBLEMS = 50
STEP_METRICS = (
    "reward_mean",
    "entropy",
    "response_tokens_mean",
    "truncated_responses",
    "zero_variance_groups",
    "mismatch_k3",
    "prompts_total",
    "tokens_trained_total",
    "flops_total",
    "device_seconds_total",
    "mismatch_k1",
    "mismatch_abs_max",
    "reward_std",
    "response_tokens_t1",
    "response_tokens_t2",
    "mismatch_abs_mean",
    "mismatch_outside_2",
    "route_gap",
    "seconds_step",
    "seconds_rollout",
)
UPDATE_METRICS = (
    "grad_norm",
    "clip_fraction_tokens",
    "clip_fraction_tokens_high",
    "clip_fraction_tokens_low",
    "response_tokens",
    "active_tokens",
    "would_clip_fraction_tokens_grpo",
    "would_clip_fraction_tokens_gspo",
    "log_ratio_std_tokens",
    "log_ratio_std_responses",
    "clip_fraction_active_tokens",
    "stale_k3",
    "stale_k1",
    "effective_fraction_tokens",
    "ratio_max_negative",
    "nonfinite",
    "expert_change",
    "router_entropy",
    "loss",
    "log_ratio_max_abs",
)
"""A study of 20 metrics has the first ten of each; a study of 40 has all."""
INTEGERS = (
    "prompts_total",
    "tokens_trained_total",
    "response_tokens",
    "active_tokens",
    "nonfinite",
)


@dataclass(frozen=True)
class Size:
    """The size of the workload."""

    arms: int
    seeds: int
    steps: int
    metrics: int
    seconds: float
    megabytes: float

    @property
    def told(self) -> str:
        return f"{self.arms * self.seeds} runs x {self.steps:,} steps x {self.metrics} metrics"


SMALL = Size(arms=2, seeds=10, steps=10_000, metrics=20, seconds=2.5, megabytes=2)
LARGE = Size(arms=4, seeds=25, steps=10_000, metrics=40, seconds=10, megabytes=8)
ARMS = {
    "grpo": 'objective = "grpo"',
    "gspo": 'objective = "gspo"',
    "grpo-replay": 'objective = "grpo"\nrouting_replay = "old-policy"',
    "gspo-replay": 'objective = "gspo"\nrouting_replay = "old-policy"',
}
STUDY = """
question = "How long does its report take?"
model = "{model}"
task = "addition"
steps = {steps}
seeds = {seeds}
[update]
minibatches = {minibatches}
[[bench]]
name = "addition"
problems = {problems}
every = {every}
{arms}
"""


def make_lab(size: Size, folder: Path) -> Path:
    """Make the study's run folders and database as a study does; return the database."""
    from gspo_lab.recording.store import ingest
    from gspo_lab.recording.store.database import writing
    from gspo_lab.recording.store.ingest import insert, write_run_state
    from gspo_lab.recording.store.schema import STEPS, UPDATES
    from gspo_lab.study import load_study

    arms = "\n".join(f"[arm.{name}]\n{ARMS[name]}" for name in list(ARMS)[: size.arms])
    toml = STUDY.format(
        model="tiny-qwen3-moe" if size.arms > 2 else "tiny-qwen3",
        steps=size.steps,
        seeds=size.seeds,
        minibatches=MINIBATCHES,
        problems=PROBLEMS,
        every=size.steps // EVALUATIONS,
        arms=arms,
    )
    (folder / "long.toml").write_text(toml)
    study = load_study(folder / "long.toml")
    runs = folder / "runs"
    (runs / study.name).mkdir(parents=True)
    (runs / study.name / "study.json").write_text(json.dumps(study.to_json()))
    for run in study.runs():
        home = run.folder(runs)
        home.mkdir(parents=True)
        (home / "run.json").write_text(json.dumps(run.to_json()))
        write_journal(run, size, home)
    ingest(runs)
    with writing(runs / "lab.db") as connection:
        for run in study.runs():
            steps, updates = series(run, size)
            run_id = run.folder(runs).relative_to(runs).as_posix()
            connection.execute("BEGIN")
            for table, columns in ((STEPS, steps), (UPDATES, updates)):
                count = len(next(iter(columns.values())))
                filled = [
                    columns.get(name, [None] * count) for name in table.names if name != "run_id"
                ]
                insert(connection, table, [(run_id, *row) for row in zip(*filled, strict=True)])
            write_run_state(connection, run_id, alive=False)
            connection.execute("COMMIT")
    return runs / "lab.db"


def write_journal(run: Any, size: Size, home: Path) -> None:
    """The records that are not series: the start, the evaluations, the end."""
    import numpy as np

    from gspo_lab.recording.journal import Journal
    from gspo_lab.recording.records import AnswerRecord, RunStatus

    rng = np.random.default_rng([run.seed, *run.arm.encode()])
    with Journal(home) as journal:
        journal.write(
            [RunStatus(state="started", step=0, at=1000.0, facts={"device": "cpu", "threads": 1})]
        )
        for step in range(0, size.steps + 1, size.steps // EVALUATIONS):
            level = 0.3 + 0.4 * step / size.steps
            draw = rng if step else np.random.default_rng(run.seed)
            right = draw.random(PROBLEMS) < level
            journal.write(
                AnswerRecord(
                    step=step,
                    bench="addition",
                    problem=f"add-{i}",
                    sample=0,
                    prompt=f"{i} + {i} =",
                    tokens=9,
                    text=str(int(correct)),
                    reference="1",
                    truncated=0,
                    reward=float(correct),
                    correct=int(correct),
                    grader="synthetic/1",
                )
                for i, correct in enumerate(right)
            )
        journal.write([RunStatus(state="finished", step=size.steps, at=2000.0)])


def series(run: Any, size: Size) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The columns of a run's steps and of its updates: noise around slow curves, six digits."""
    import hashlib

    import numpy as np

    rng = np.random.default_rng([7, run.seed, *run.arm.encode()])
    steps = np.arange(size.steps)
    half = size.metrics // 2
    rise = 1 - np.exp(-3 * steps / size.steps)
    own: dict[str, list[Any]] = {
        "step": steps.tolist(),
        "prompts": [32] * size.steps,
        "responses": [256] * size.steps,
    }
    own["prompt_digest"] = [
        hashlib.sha256(b"%d %d" % (run.seed, step)).hexdigest() for step in steps
    ]
    for name in STEP_METRICS[:half]:
        values = (
            (steps + 1) * 256.0
            if name.endswith("_total")
            else 0.2 + 0.6 * rise + rng.normal(0, 0.05, size.steps)
        )
        own[name] = _as(name, values)
    every = {
        "step": np.repeat(steps, MINIBATCHES).tolist(),
        "minibatch": [*range(MINIBATCHES)] * size.steps,
    }
    minibatch = np.tile(np.arange(MINIBATCHES), size.steps)
    for name in UPDATE_METRICS[:half]:
        noise = np.abs(rng.normal(0.1, 0.03, size.steps * MINIBATCHES))
        if name in INTEGERS:
            noise = np.full(len(noise), 0.0 if name == "nonfinite" else 900.0)
        elif name not in ("grad_norm", "router_entropy", "loss"):
            noise = noise * minibatch  # before the first update every ratio is 1
        every[name] = _as(name, noise)
    return own, every


def _as(name: str, values: Any) -> list[Any]:
    found: list[Any] = (values.astype(int) if name in INTEGERS else values.round(6)).tolist()
    return found


def render_once(database: Path, to: Path) -> None:
    """Do the work of `gspo-lab report` in this process."""
    from gspo_lab.analysis.readings import Source
    from gspo_lab.recording.store import Evidence
    from gspo_lab.report import render, write

    with Evidence.open(database) as evidence:
        write(render([Source(evidence, name) for name in evidence.studies()]), to)


def timed(database: Path, to: Path, times: int = 3) -> Iterator[tuple[float, float]]:
    """Seconds of a fresh process from start to end, with imports, and its processor time."""
    for _ in range(times):
        begun = time.perf_counter()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, str(HERE), "--render", str(database), str(to)], check=True)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        yield (
            time.perf_counter() - begun,
            now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
        )


def peers(python: str, size: Size, folder: Path) -> dict[str, Any]:
    """The figures of `report_peers.py` under another interpreter; it names absent peers."""
    command = [
        python,
        str(HERE.with_name("report_peers.py")),
        str(size.arms * size.seeds),
        str(size.steps),
        str(size.metrics),
        str(folder),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="100 runs and 40 metrics")
    parser.add_argument(
        "--folder", type=Path, help="keep the study here, and use it again; each size needs its own"
    )
    parser.add_argument("--peers", metavar="PYTHON", help="measure peers with this interpreter")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument(
        "--render", nargs=2, type=Path, metavar=("DATABASE", "TO"), help=argparse.SUPPRESS
    )
    wanted = parser.parse_args()
    if wanted.render:
        render_once(*wanted.render)
        return
    size = LARGE if wanted.large else SMALL
    with tempfile.TemporaryDirectory() as temporary:
        folder = wanted.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        database = folder / "runs" / "lab.db"
        kept = folder / "size.json"
        if not database.exists():
            kept.write_text(json.dumps(asdict(size)))
            database = make_lab(size, folder)
        elif not kept.exists() or json.loads(kept.read_text()) != asdict(size):
            parser.error(
                f"--folder {folder} keeps a study of another size than {size.told}: name another"
                " folder"
            )
        if wanted.profile:
            import cProfile
            import pstats

            with cProfile.Profile() as profile:
                render_once(database, folder / "reports")
            pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
            return
        seconds, processor = min(timed(database, folder / "reports"))
        page = folder / "reports" / "long.html"
        found: dict[str, Any] = {
            "workload": size.told,
            "database_mb": round(database.stat().st_size / 1e6, 1),
            "seconds": round(seconds, 2),
            "processor_seconds": round(processor, 2),
            "page_mb": round(page.stat().st_size / 1e6, 2),
            "within": seconds <= size.seconds and page.stat().st_size <= 1e6 * size.megabytes,
        }
        with tempfile.TemporaryDirectory() as scratch:
            found["peers"] = peers(wanted.peers or sys.executable, size, Path(scratch))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
