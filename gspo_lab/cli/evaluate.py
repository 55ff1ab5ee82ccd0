"""`eval`: evaluates models on benchmarks; scores with intervals over problems, and comparisons of
arms.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.output import print_json, print_lines, print_table
from gspo_lab.cli.shared_options import (
    RUNS,
    Json,
    Runs,
    UnsafeNoSandbox,
    evidence_of,
    study_named,
    warn,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import Exit
from gspo_lab.recording.runfolder import RunFolder

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.analysis.readings import Source
    from gspo_lab.cli.published_score import PublishedNumber
    from gspo_lab.recording.store import Evidence
    from gspo_lab.tasks.evaluation.benchmark_spec import Bench
    from gspo_lab.tasks.evaluation.evaluation_run import EvaluatedModel

EXAMPLES = {
    "eval": (
        "gspo-lab eval --bench aime24",
        "gspo-lab eval --bench addition --run my_study/gspo/s0",
        "gspo-lab eval --bench gsm8k --bench math500 --model out/final --limit 100",
        "gspo-lab eval --bench aime24 --server http://localhost:8000/v1 --model Qwen/Qwen3-8B",
        "gspo-lab eval --bench aime24 --model Qwen/Qwen3-8B --published 47.4",
    )
}

SUSPICIOUS = 0.02
"""Above this share of long answers that repeat another answer to the same problem, a note says so.
"""

LOWERED = {
    "context": "all that the prompt leaves of the context",
    "embedded": "all that an embedded model gets",
}
"""Why answers had a lower token limit than the requested one."""


RATINGS = {
    "rating": ("rating of one attempt", 1),
    "rating_of_eight": ("rating of up to 8 attempts", 8),
}
"""Estimates from the problems' CodeForces ratings, with the attempts of each.

CodeElo ranks over whole contests.
"""
OF_SCORE = {"score": "mean", "low": "item_low", "high": "item_high"} | {
    n: n for n in ("se", "sampling_se", "item_se")
}


def evaluate(
    bench: Annotated[
        list[str],
        typer.Option(
            help="Benchmark, task, or a study's own [[bench]]. Its held-out problems are used."
            " Repeatable."
        ),
    ],
    study: Annotated[
        str | None, typer.Option(help="Evaluate the runs of this study. Default: the latest.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Evaluate only this run, for example my_study/gspo/s0.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Evaluate a model folder or Hub id. With --server: the model's name there."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Evaluate a model behind an OpenAI-compatible server, http://HOST:8000/v1.",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Answers per problem (avg@k). Default: the benchmark's.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Sampling temperature; 0 is greedy. Default: the benchmark's."),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Nucleus sampling. Default: the benchmark's.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Token limit of an answer. Default: the benchmark's.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only this many first problems. Default: all.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[BENCH=]FILE", help="Local copy of a benchmark's problems. Repeatable."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed for --model and --server. A run uses its own seed.")
    ] = 0,
    raw_prompts: Annotated[
        bool,
        typer.Option("--raw-prompts", help="With --server: send prompts without a chat template."),
    ] = False,
    concurrency: Annotated[
        int, typer.Option(help="With --server: requests at the same time.")
    ] = 16,
    api_key_env: Annotated[
        str, typer.Option(help="With --server: environment variable that holds the API key.")
    ] = "OPENAI_API_KEY",
    device: Annotated[
        str, typer.Option(help="Device that torch knows: auto, cpu, cuda, cuda:1.")
    ] = "auto",
    published: Annotated[
        float | None,
        typer.Option(help="Compare the score with this published number, per cent or a share."),
    ] = None,
    published_answers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --published: its number of answers. Default: one a problem."
        ),
    ] = None,
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Score models on benchmarks and store every answer.

    Evaluates the first and last model of each run of a study, or one model, or a server. The same
    command resumes an interrupted evaluation.
    """
    from gspo_lab.cli.published_score import PublishedNumber
    from gspo_lab.recording.store import ingest
    from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides
    from gspo_lab.tasks.evaluation.evaluated_models import model_subject, server_subject
    from gspo_lab.training.models.wording import has_chat_template

    if model is not None and (study or run):
        raise LabError(
            "--model is evaluated instead of the runs of a study: remove --study and --run"
        )
    if raw_prompts and server is None:
        raise LabError(
            "--raw-prompts is for --server: a model in this process gets the prompts of its"
            " training"
        )
    if (published is None and published_answers is not None) or (published and len(bench) > 1):
        raise LabError("--published and its --published-answers belong to one --bench")
    number = None if published is None else PublishedNumber(published, published_answers)
    wish = BenchmarkOverrides(samples, temperature, top_p, max_tokens, limit, raw_prompts)
    benches_of = partial(
        _benches, bench, copies=_copies(data or [], bench), unsafe=unsafe, wish=wish
    )
    if server is not None:
        if model is None:
            raise LabError(f"--server {server}: name its model with --model")
        from gspo_lab.training.samplers.server_sampler import ServerEndpoint

        key = os.environ.get(api_key_env)
        if key is None and api_key_env != "OPENAI_API_KEY":
            raise LabError(f"--api-key-env {api_key_env}: this environment variable is not set")
        place = ServerEndpoint(server, model, key, concurrency)
        pairs = [
            (task, server_subject(runs, place, seed=seed))
            for task in benches_of(chat=not raw_prompts)
        ]
    elif model is not None:
        subject = model_subject(runs, model, seed=seed, device=device)
        pairs = [(task, subject) for task in benches_of(chat=has_chat_template(model))]
    else:
        study, pairs = _runs_and_benches(runs, study, run, bench, benches_of, device)

    _check_graders(pairs)
    missing = _ask_all(pairs, runs, "" if server is None else f"waiting for {server}")
    ingest(runs)
    benches = {bench.evaluation: bench for bench, _ in pairs}
    ids = list(dict.fromkeys(subject.id for _, subject in pairs))
    served = model if server is not None else None
    compared_study = None if run or model else study
    graded = _show(runs, ids, benches, compared_study, json, served, number)
    if missing or not graded:
        raise typer.Exit(Exit.INCOMPLETE)


def _copies(data: Sequence[str], benches: Sequence[str]) -> dict[str, str]:
    out = {}
    for text in data:
        bench, separator, file = text.partition("=")
        if not separator or bench not in benches:
            if len(benches) > 1:
                raise LabError(
                    f"--data {text}: name the benchmark it belongs to, for example --data"
                    f" {benches[0]}=FILE"
                )
            bench = benches[0]
            file = text
        if not Path(file).expanduser().exists():
            raise LabError(f"--data {file}: this file does not exist")
        out[bench] = str(Path(file).expanduser().resolve())
    return out


def _benches(
    names: Sequence[str],
    *,
    copies: Mapping[str, str],
    unsafe: bool,
    wish: Any,
    chat: bool = False,
    study_task: Any = None,
    study_benches: JsonMapping = MappingProxyType({}),
    base: Path | None = None,
) -> "list[Bench]":
    """The benchmarks with the protocol of `wish`, for a `chat` model or not; `copies` are local
    files by benchmark.

    `study_task` is the task of a study, which keeps its options. `study_benches` are its [[bench]]
    tables by name, which keep their tasks and sampling.
    """
    from gspo_lab.tasks import KNOWN, without_sandbox
    from gspo_lab.tasks.evaluation.benchmark_spec import DATA, bench_of
    from gspo_lab.training.models.wording import worded

    out = []
    for bench_name in dict.fromkeys(names):
        name = bench_name
        task = study_task
        overrides = wish
        if bench_name in study_benches and bench_name not in KNOWN:
            table = study_benches[bench_name]
            task = table.task or study_task
            name = task.name
            overrides = wish.with_defaults_of(table)
        own_options = task.options if task is not None and task.name == name else {}
        options = worded(name, own_options, chat=chat)
        if bench_name in copies:
            # A user's task calls its file of problems `problems`.
            options = {**options, "problems" if ":" in name else DATA: copies[bench_name]}
        if unsafe:
            options = without_sandbox(name, options)
        out.append(bench_of(name, options, base or Path(), overrides))
    return out


def _runs_and_benches(
    runs: Path,
    study: str | None,
    run: str | None,
    names: Sequence[str],
    benches_of: "Callable[..., list[Bench]]",
    device: str,
) -> "tuple[str, list[tuple[Bench, EvaluatedModel]]]":
    """The start and the end of every run of the study, each with every benchmark; and the study's
    name.
    """
    from gspo_lab.tasks.evaluation.evaluated_models import run_chats, run_subjects

    with evidence_of(runs) as evidence:
        name = study_named(evidence, run.partition("/")[0] if run else study, runs)
        recorded = list(evidence.runs(name)["run_id"])
    ids = [run_id for run_id in recorded if run in (None, run_id)]
    if not ids:
        problem = "no runs" if run is None else f"no run '{run}'{nearest(run, recorded)}"
        raise LabError(f"{problem}; {name} has {', '.join(recorded) or 'none'}")
    folder = RunFolder(runs / ids[0])
    run_of_folder = folder.run()
    chat = run_chats(folder)
    study_task = run_of_folder.settings.task
    base = Path(run_of_folder.base)
    study_benches = {table.name: table for table in run_of_folder.settings.bench}
    _check_names(names, study_benches, name)
    benches = benches_of(chat=chat, study_task=study_task, study_benches=study_benches, base=base)
    subjects: list[EvaluatedModel] = []
    for run_id in ids:
        subjects += run_subjects(RunFolder(runs / run_id), device=device)
    return name, list(product(benches, subjects))


def _check_names(names: Sequence[str], study_benches: JsonMapping, study: str) -> None:
    """LabError for a name that is neither a task's nor that of a [[bench]] of the study."""
    from gspo_lab.tasks import KNOWN

    for name in names:
        task = name.partition(":")[0].partition("-")[0]
        if ":" in name or task in KNOWN or name in study_benches:
            continue
        near = nearest(name, [*study_benches, *KNOWN])
        listed = ", ".join(study_benches) or "none"
        raise LabError(
            f"--bench {name}: neither a task nor a [[bench]] of {study}{near}; {study} has {listed}"
        )


def _check_graders(pairs: "Sequence[tuple[Bench, EvaluatedModel]]") -> None:
    """LabError where missing answers could not be graded on this machine; stored answers need no
    grader.
    """
    from gspo_lab.tasks import check_isolation
    from gspo_lab.tasks.evaluation.evaluation_run import unanswered

    for bench in {bench.evaluation: bench for bench, _ in pairs}.values():
        try:
            check_isolation(bench.task_name, bench.options)
        except LabError:
            if any(
                unanswered(subject, bench) for evaluated, subject in pairs if evaluated is bench
            ):
                raise


def _ask_all(pairs: "Sequence[tuple[Bench, EvaluatedModel]]", runs: Path, waits_for: str) -> int:
    """Evaluate each model on its benchmark, with progress on stderr; returns the number of answers
    still missing.
    """
    from gspo_lab.recording.store import ingest
    from gspo_lab.running.progress import counting
    from gspo_lab.tasks.evaluation.evaluation_run import evaluate_subject

    missing = 0
    totals = Counter[str]()
    for bench, _ in pairs:
        totals[bench.evaluation] += len(bench.problems) * bench.samples
    try:
        with counting("eval", totals, waits_for) as advance:
            twins: dict[
                tuple[str, str, int], EvaluatedModel
            ] = {}  # runs of one seed start from the same weights
            for bench, subject in pairs:
                alike = (bench.evaluation, subject.weights or subject.id, subject.seed)
                outcome = evaluate_subject(
                    subject, bench, partial(advance, bench.evaluation), twins.get(alike)
                )
                twins.setdefault(alike, subject)
                missing += outcome.missing
                why = "; ".join(outcome.reasons[:3])
                size = len(bench.problems) * bench.samples
                if outcome.missing:
                    warn(
                        f"{outcome.missing} of {size} answers of {subject.id} to {bench.name} are"
                        f" missing ({why or 'not asked'}): the same command asks for them again"
                    )
                elif why:
                    warn(f"{subject.id}: {why}")
    except KeyboardInterrupt:
        ingest(runs)
        typer.echo("interrupted; the same command asks for the missing answers", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    return missing


def _difficulties(bench: "Bench") -> JsonObject:
    """The difficulty of every problem whose task rates it."""
    rating = getattr(bench.task, "difficulty", lambda problem: None)
    ratings = {problem.id: rating(problem) for problem in bench.problems}
    return {problem: value for problem, value in ratings.items() if value is not None}


def _arms_compared(source: "Source", bench: str) -> list[JsonObject]:
    """How a study's arms compare with its baseline on one benchmark."""
    from gspo_lab.analysis.readings.answers import arms_apart

    return [
        {
            "bench": bench_name,
            "arm": arm,
            "against": source.declaration.baseline,
            "seeds": test.seeds,
            "problems": problems,
            "difference": test.estimate,
            "low": test.low,
            "high": test.high,
            "note": test.reason,
        }
        for bench_name, arm, problems, test in arms_apart(source, bench)
    ]


def _print_scores(
    name: str,
    bench: "Bench",
    rows: list[JsonObject],
    compared: list[JsonObject] | None,
) -> None:
    """The table of one benchmark's scores, and how a study's arms compare on it."""
    readable = [_readable(row) for row in rows]
    print_table(readable, empty="no answers", title=f"{name}\n{_protocol(bench, rows)}")
    if compared:
        print_table(compared, empty="", title="\narms, on new problems and new seeds")


def _print_published(rows: list[JsonObject]) -> None:
    """How each score compares with the published number, and what differs in protocol."""
    from gspo_lab.cli.published_score import sentence

    for row in rows:
        print_lines([f"{row['run_id']}, step {row['step']}: {sentence(row['published'])}"])
    print_lines([_published_protocol(rows[0]["published"]["differs"])])


def _show(
    runs: Path,
    ids: list[str],
    benches: "dict[str, Bench]",
    study: str | None,
    json: bool,
    served: str | None,
    published: "PublishedNumber | None",
) -> bool:
    """Print the scores with their intervals, and for a study how its arms compare. `served`: the
    model of a server.

    Returns whether all answers were graded.
    """
    from gspo_lab.analysis.readings import Source

    with evidence_of(runs) as evidence:
        rows = {}
        for name, bench in benches.items():
            rows[name] = scores(evidence, ids, name, _difficulties(bench))
            if published is not None:
                for row in rows[name]:
                    row["published"] = published.compared(row, bench)
        source = Source(evidence, study or "")
        compared = {}
        if study is not None:
            compared = {name: _arms_compared(source, name) for name in benches}
    if json:
        protocols = {name: bench.protocol for name, bench in benches.items()}
        flat = list(chain.from_iterable(rows.values()))
        together = list(chain.from_iterable(compared.values()))
        print_json({"asked": protocols, "scores": flat, "comparisons": together})
    else:
        for name, bench in benches.items():
            _print_scores(name, bench, rows[name], compared.get(name))
            if published is not None:
                _print_published(rows[name])
    for name, bench in benches.items():
        for note in _notes(rows[name], served, sampled=bench.sampling.temperature > 0):
            warn(f"{name}: {note}")
    return not any(row["errors"] for row in chain.from_iterable(rows.values()))


def _published_protocol(differs: Mapping[str, str]) -> str:
    """What may differ between an evaluation and that of a published number."""
    settings = ", ".join(f"{name} {values}" for name, values in differs.items())
    return (
        f"Unlike the benchmark's usual settings: {settings or 'nothing'}. Not known of the"
        " published number: its settings, prompt and grader."
    )


def rated(difficulty: Mapping[str, float], graded: "DataFrame", attempts: int) -> JsonObject | None:
    """The rating by the chance that `attempts` answers solve each problem of known difficulty.

    None without such a problem, or where a problem has fewer answers. `graded`: columns problem,
    correct and graded (counts).
    """
    from gspo_lab.analysis.stats.passk import estimate_rating, pass_at_k

    graded = graded[graded["problem"].isin(list(difficulty))]
    if graded.empty or graded["graded"].min() < attempts:
        return None
    solved = pass_at_k(graded["correct"], graded["graded"], attempts)
    return {
        **vars(estimate_rating(graded["problem"].map(difficulty), solved)),
        "note": "estimate, not CodeElo",
    }


def scores(
    evidence: "Evidence",
    ids: list[str],
    evaluation: str,
    difficulty: Mapping[str, float] | None = None,
) -> list[JsonObject]:
    """One row per run (or model, or server) and step: avg@k with an interval over problems, pass@k,
    what went wrong.
    """
    from gspo_lab.analysis.readings.answers import checkpoints

    plain = (
        "run_id",
        "bench",
        "step",
        "problems",
        "samples",
        "k",
        "pass_at_k",
        "distinct",
        "error",
        "answered_by",
    )
    out = []
    for checkpoint in checkpoints(evidence, ids, evaluation):
        row: JsonObject = {
            **{name: getattr(checkpoint, name) for name in plain},
            **{key: getattr(checkpoint.score, name, None) for key, name in OF_SCORE.items()},
            **checkpoint.counts,
            "evaluation": evaluation,
            "limits": checkpoint.how.get("limits"),
            "weights": (
                checkpoint.how.get("subject", {}).get("checkpoints", {}).get(str(checkpoint.step))
            ),
        }
        if difficulty:
            row |= {
                name: rated(difficulty, checkpoint.graded, attempts)
                for name, (_, attempts) in RATINGS.items()
            }
        out.append(row)
    return out


def _readable(row: JsonObject) -> JsonObject:
    k = row["k"]
    several = {} if k == 1 else {f"pass@{k}": row["pass_at_k"], "distinct": row["distinct"]}
    return {
        "asked": row["run_id"],
        "step": row["step"],
        f"avg@{row['samples']}": row["score"],
        "95%": None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}",
        **several,
        **{
            words: _rating_words(row[name]) for name, (words, _) in RATINGS.items() if row.get(name)
        },
        "cut": row["truncated"],
        "not graded": row["errors"],
        **({"answered by": row["answered_by"]} if row["by_others"] else {}),
    }


def _rating_words(rating: JsonMapping) -> str:
    low = None if rating["low"] is None else round(rating["low"])
    high = None if rating["high"] is None else round(rating["high"])
    if rating["rating"] is None:
        return f"below {high}" if low is None else f"above {low}"
    return (
        f"{rating['rating']:.0f} (no interval)"
        if low is None
        else f"{rating['rating']:.0f} ({low} to {high})"
    )


def _protocol(bench: "Bench", rows: list[JsonObject]) -> str:
    sampling = bench.sampling
    task = bench.task
    limits = [row["limits"] for row in rows if row["limits"]]
    low = min((limit["lowest"] for limit in limits), default=sampling.max_tokens)
    high = max((limit["highest"] for limit in limits), default=sampling.max_tokens)
    why = " and ".join(
        sorted({LOWERED[limit["lowered_by"]] for limit in limits if limit["lowered_by"]})
    )
    lowered = f" (instead of {sampling.max_tokens:,}: {why})" if why else ""
    data = "" if task.data_digest is None else f", data {task.data_digest[:12]}"
    limit = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"{len(bench.problems)} problems x {bench.samples},"
        f" temperature {sampling.temperature:g}, top-p {sampling.top_p:g},"
        f" token limit {limit}{lowered},"
        f" prompt {task.prompt_version}, grader {task.grader}{data}; 95% over problems"
    )


def _notes(rows: list[JsonObject], served: str | None, *, sampled: bool) -> Iterator[str]:
    """Remarks on an evaluation, a line each: where the grader failed, where a server named another
    model than the requested `served`, and where sampled answers repeat each other. Servers with
    equal seeds repeat answers.
    """
    errors = sum(row["errors"] for row in rows)
    answers = sum(row["answers"] for row in rows)
    renamed = sum(row["by_others"] for row in rows)
    repeats = sum(row["repeats"] for row in rows)
    long = sum(row["long"] for row in rows)
    if errors:
        why = next((row["error"] for row in rows if row["error"]), "no reason was given")
        ungraded = f"{errors} of {answers} answers could not be graded and are in no score ({why})"
        yield f"{ungraded}: gspo-lab records regrade tries again"
    if served is not None and renamed:
        name = next(row["answered_by"] for row in rows if row["by_others"])
        by = f"{renamed} of {answers} answers are, as the server says, by '{name}'"
        yield f"{by} and not by '{served}', which was asked"
    # A model in this process seeds every sample by itself; whether a server does is unknown.
    if served is not None and sampled and repeats > SUSPICIOUS * long:
        yield (
            f"{repeats} of {long} long answers repeat another answer to the same problem word for"
            " word; does the engine seed every sample for itself? (a model that ends in a loop"
            " does it too)"
        )
