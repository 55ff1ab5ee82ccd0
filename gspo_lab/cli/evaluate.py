"""`eval`: asks models the questions of benchmarks. What is said of the answers is in
evaluation_scores.py.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.evaluation_scores import show_scores
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
from gspo_lab.common.plain_data import JsonMapping, OptionalFloat, OptionalInt
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import Exit
from gspo_lab.recording.runfolder import RunFolder

if TYPE_CHECKING:
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


def evaluate(
    bench: Annotated[
        list[str],
        typer.Option(
            help="Benchmark, task, or a study's own [[bench]]. Its held-out problems are used."
            " Repeatable."
        ),
    ],
    study: Annotated[
        str | None,
        typer.Option(
            help="Evaluate the runs of this study. Default: the latest. With --model: name its"
            " [[bench]]."
        ),
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
        OptionalInt, typer.Option(help="Answers per problem (avg@k). Default: the benchmark's.")
    ] = None,
    temperature: Annotated[
        OptionalFloat,
        typer.Option(help="Sampling temperature; 0 is greedy. Default: the benchmark's."),
    ] = None,
    top_p: Annotated[
        OptionalFloat, typer.Option(help="Nucleus sampling. Default: the benchmark's.")
    ] = None,
    max_tokens: Annotated[
        OptionalInt, typer.Option(help="Token limit of an answer. Default: the benchmark's.")
    ] = None,
    limit: Annotated[
        OptionalInt, typer.Option(help="Use only this many first problems. Default: all.")
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
        OptionalFloat,
        typer.Option(help="Compare the score with this published number, per cent or a share."),
    ] = None,
    published_answers: Annotated[
        OptionalInt,
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
    from gspo_lab.tasks.evaluation.evaluated_models import (
        model_subject,
        run_subjects,
        server_subject,
    )
    from gspo_lab.training.models.wording import has_chat_template

    if model is not None and (run or (study and server)):
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
        chat = has_chat_template(model)
        if study is None:
            benches = benches_of(chat=chat)
        else:
            _, _, benches = _runs_and_benches(runs, study, None, bench, benches_of, chat)
        pairs = list(product(benches, [subject]))
    else:
        study, ids, benches = _runs_and_benches(runs, study, run, bench, benches_of)
        subjects = [run_subjects(RunFolder(runs / run_id), device=device) for run_id in ids]
        pairs = list(product(benches, chain.from_iterable(subjects)))

    _check_graders(pairs)
    missing = _ask_all(pairs, runs, "" if server is None else f"waiting for {server}")
    ingest(runs)
    by_evaluation = {bench.evaluation: bench for bench, _ in pairs}
    ids = list(dict.fromkeys(subject.id for _, subject in pairs))
    served = model if server is not None else None
    compared_study = None if run or model else study
    graded = show_scores(runs, ids, by_evaluation, compared_study, json, served, number)
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
    chat: bool | None = None,
) -> "tuple[str, list[str], list[Bench]]":
    """The study's name, its runs, and the benchmarks, which may be its own.

    They are asked of a `chat` model or not; None: as the runs' own models are.
    """
    from gspo_lab.tasks.evaluation.evaluated_models import run_chats

    with evidence_of(runs) as evidence:
        name = study_named(evidence, run.partition("/")[0] if run else study, runs)
        recorded = list(evidence.runs(name)["run_id"])
    ids = [run_id for run_id in recorded if run in (None, run_id)]
    if not ids:
        problem = "no runs" if run is None else f"no run '{run}'{nearest(run, recorded)}"
        raise LabError(f"{problem}; {name} has {', '.join(recorded) or 'none'}")
    folder = RunFolder(runs / ids[0])
    run_of_folder = folder.run()
    chat = run_chats(folder) if chat is None else chat
    study_task = run_of_folder.settings.task
    base = Path(run_of_folder.base)
    study_benches = {table.name: table for table in run_of_folder.settings.bench}
    _check_names(names, study_benches, name)
    benches = benches_of(chat=chat, study_task=study_task, study_benches=study_benches, base=base)
    return name, ids, benches


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
