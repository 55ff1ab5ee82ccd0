import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gspo_lab.cli.shared_options import RUNS, Json, Runs, UnsafeNoSandbox, evidence_of, study_named, tell
from gspo_lab.errors import LabError
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.evaluation.bench import Bench
    from gspo_lab.evaluation.session import Subject

EXAMPLES = (
    "gspo-lab eval --bench aime24",
    "gspo-lab eval --bench addition --run quickstart/gspo/s0",
    "gspo-lab eval --bench gsm8k --bench math500 --model out/final --limit 100",
    "gspo-lab eval --bench aime24 --server http://localhost:8000/v1 --model Qwen/Qwen3-8B",
)


class Given(NamedTuple):
    """Options of tasks: benchmark -> local copy of its problems, and whether programs may run without isolation."""

    copies: dict[str, str]
    unsafe: bool


def evaluate(
    bench: Annotated[list[str], typer.Option(help="Benchmark or task. Its held-out problems are used. Repeatable.")],
    study: Annotated[str | None, typer.Option(help="Evaluate the runs of this study. Default: the latest.")] = None,
    run: Annotated[str | None, typer.Option(help="Evaluate only this run, for example quickstart/gspo/s0.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Evaluate a model folder or Hub id. With --server: the model's name there.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Evaluate a model behind an OpenAI-compatible server, http://HOST:8000/v1."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Answers per problem (avg@k). Default: the benchmark's.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; 0 is greedy. Default: the benchmark's.")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling. Default: the benchmark's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Token limit of an answer. Default: the benchmark's.")] = None,
    limit: Annotated[int | None, typer.Option(help="Use only the first problems, this many. Default: all.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="[BENCH=]FILE", help="Local copy of a benchmark's problems. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for --model and --server. A run uses its own seed.")] = 0,
    raw_prompts: Annotated[
        bool, typer.Option("--raw-prompts", help="With --server: send prompts without a chat template.")
    ] = False,
    concurrency: Annotated[int, typer.Option(help="With --server: requests at the same time.")] = 16,
    api_key_env: Annotated[
        str, typer.Option(help="With --server: environment variable that holds the API key.")
    ] = "OPENAI_API_KEY",
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    unsafe: UnsafeNoSandbox = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Score models on benchmarks and store every answer.

    Evaluates the first and last model of each run of a study, or one model, or a server. The same command resumes an
    interrupted evaluation.
    """
    from gspo_lab.evaluation.bench import Wish
    from gspo_lab.evaluation.subjects import model_subject, server_subject
    from gspo_lab.models.wording import has_chat_template
    from gspo_lab.store import ingest

    if model is not None and (study or run):
        raise LabError("--model is evaluated instead of the runs of a study: remove --study and --run")
    if raw_prompts and server is None:
        raise LabError("--raw-prompts is for --server: a model in this process gets the prompts of its training")
    if device not in ("auto", "cpu", "cuda"):
        raise LabError(f"--device {device}: must be auto, cpu or cuda")
    wish = Wish(samples, temperature, top_p, max_tokens, limit, raw_prompts)
    given = Given(_copies(data or [], bench), unsafe)
    if server is not None:
        if model is None:
            raise LabError(f"--server {server}: name its model with --model")
        from gspo_lab.samplers.server_sampler import Server

        place = Server(server, model, _key(api_key_env), concurrency)
        pairs = [
            (one, server_subject(runs, place, seed=seed)) for one in _benches(bench, given, wish, chat=not raw_prompts)
        ]
    elif model is not None:
        benches = _benches(bench, given, wish, chat=has_chat_template(model))
        pairs = [(one, model_subject(runs, model, seed=seed, device=device)) for one in benches]
    else:
        study, pairs = _runs_and_benches(runs, study, run, bench, given, wish, device)

    _check_graders(pairs)
    missing = _ask_all(pairs, runs, "" if server is None else f"waiting for {server}")
    ingest(runs)
    wanted = {one.evaluation: one for one, _ in pairs}
    ids = list(dict.fromkeys(subject.id for _, subject in pairs))
    served = model if server is not None else None
    graded = _show(runs, ids, wanted, None if run or model else study, json, served)
    if missing or not graded:
        raise typer.Exit(Exit.INCOMPLETE)


def _copies(data: Sequence[str], benches: Sequence[str]) -> dict[str, str]:
    """`--data`: which benchmark is read from which file."""
    out = {}
    for text in data:
        bench, given, file = text.partition("=")
        if not given or bench not in benches:
            if len(benches) > 1:
                raise LabError(f"--data {text}: name the benchmark it belongs to, for example --data {benches[0]}=FILE")
            bench, file = benches[0], text
        if not Path(file).expanduser().exists():
            raise LabError(f"--data {file}: this file does not exist")
        out[bench] = str(Path(file).expanduser().resolve())
    return out


def _key(variable: str) -> str | None:
    key = os.environ.get(variable)
    if key is None and variable != "OPENAI_API_KEY":
        raise LabError(f"--api-key-env {variable}: this environment variable is not set")
    return key


def _benches(
    names: Sequence[str], given: Given, wish: Any, *, chat: bool = False, own: Any = None, base: Path | None = None
) -> "list[Bench]":
    """The benchmarks, asked as wished, of a `chat` model or not. `own` is the task of a study: it keeps its options."""
    from gspo_lab.evaluation.bench import DATA, bench_of
    from gspo_lab.models.wording import worded
    from gspo_lab.tasks import without_sandbox

    out = []
    for name in dict.fromkeys(names):
        options = worded(name, own.options if own is not None and own.name == name else {}, chat=chat)
        if name in given.copies:
            # A task of one's own calls its file of problems just that.
            options = {**options, "problems" if ":" in name else DATA: given.copies[name]}
        if given.unsafe:
            options = without_sandbox(name, options)
        out.append(bench_of(name, options, base or Path(), wish))
    return out


def _runs_and_benches(
    runs: Path, study: str | None, run: str | None, names: Sequence[str], given: Given, wish: Any, device: str
) -> "tuple[str, list[tuple[Bench, Subject]]]":
    """The start and the end of every run of the study, each with every benchmark; and the study's name."""
    from gspo_lab.evaluation.subjects import run_chats, run_subjects
    from gspo_lab.registry import nearest
    from gspo_lab.runfolder import RunFolder

    with evidence_of(runs) as evidence:
        wanted = study_named(evidence, run.partition("/")[0] if run else study, runs)
        known = list(evidence.runs(wanted)["run_id"])
    ids = [run_id for run_id in known if run in (None, run_id)]
    if not ids:
        what = "no runs" if run is None else f"no run '{run}'{nearest(run, known)}"
        raise LabError(f"{what}; {wanted} has {', '.join(known) or 'none'}")
    folder = RunFolder(runs / ids[0])
    first = folder.run()
    chat, own, base = run_chats(folder), first.settings.task, Path(first.base)
    benches = _benches(names, given, wish, chat=chat, own=own, base=base)
    subjects = [subject for run_id in ids for subject in run_subjects(RunFolder(runs / run_id), device=device)]
    return wanted, [(bench, subject) for bench in benches for subject in subjects]


def _check_graders(pairs: "Sequence[tuple[Bench, Subject]]") -> None:
    """LabError where answers are wanted that could not be graded here; those that are there are shown all the same."""
    from gspo_lab.evaluation.session import unanswered
    from gspo_lab.tasks import check_isolation

    for bench in {one.evaluation: one for one, _ in pairs}.values():
        try:
            check_isolation(bench.task_name, bench.options)
        except LabError:
            if any(unanswered(subject, one) for one, subject in pairs if one is bench):
                raise


def _ask_all(pairs: "Sequence[tuple[Bench, Subject]]", runs: Path, waits_for: str) -> int:
    """Ask everybody everything, with progress and the time left on stderr; the number of answers still missing."""
    from gspo_lab.evaluation.session import evaluate_subject
    from gspo_lab.progress import counting
    from gspo_lab.store import ingest

    missing = 0
    totals: dict[str, int] = {}
    for bench, _ in pairs:
        totals[bench.evaluation] = totals.get(bench.evaluation, 0) + _size(bench)
    try:
        with counting("eval", totals, waits_for) as advance:
            twins: dict[tuple[str, str, int], Subject] = {}  # runs of one seed start from the same weights
            for bench, subject in pairs:
                alike = (bench.evaluation, subject.weights or subject.id, subject.seed)
                asked = evaluate_subject(subject, bench, partial(advance, bench.evaluation), twins.get(alike))
                twins.setdefault(alike, subject)
                missing += asked.missing
                if asked.missing:
                    why = "; ".join(asked.reasons[:3]) or "not asked"
                    tell(
                        f"{asked.missing} of {_size(bench)} answers of {subject.id} to {bench.name} are missing "
                        f"({why}): the same command asks for them again"
                    )
                elif asked.reasons:
                    tell(f"{subject.id}: {'; '.join(asked.reasons[:3])}")
    except KeyboardInterrupt:
        ingest(runs)
        typer.echo("interrupted; the same command asks for the missing answers", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    return missing


def _size(bench: "Bench") -> int:
    return len(bench.problems) * bench.samples


def _show(
    runs: Path,
    ids: list[str],
    benches: "dict[str, Bench]",
    study: str | None,
    json: bool,
    served: str | None,
) -> bool:
    """The scores with their intervals; for a study also how its arms compare. `served`: the model of a server.

    Whether all answers were graded.
    """
    from gspo_lab.cli import evaluation_tables
    from gspo_lab.cli.output import print_json, print_table
    from gspo_lab.readings import Source

    with evidence_of(runs) as evidence:
        rows = {
            name: evaluation_tables.scores(evidence, ids, name, evaluation_tables.difficulties(bench))
            for name, bench in benches.items()
        }
        found = None if study is None else Source(evidence, study)
        compared = {} if found is None else {name: evaluation_tables.comparisons(found, name) for name in benches}
    if json:
        flat = [row for name in benches for row in rows[name]]
        asked = {name: bench.asked for name, bench in benches.items()}
        together = [row for name in compared for row in compared[name]]
        print_json({"asked": asked, "scores": flat, "comparisons": together})
    else:
        for name, bench in benches.items():
            together = evaluation_tables.with_shared_starts(rows[name])
            seen = [evaluation_tables.shown(row) for row in together]
            print_table(seen, empty="no answers", title=f"{name}\n{evaluation_tables.asked_how(bench, rows[name])}")
            if compared.get(name):
                print_table(compared[name], empty="", title="\narms, on new problems and new seeds")
    for name, bench in benches.items():
        if note := evaluation_tables.ungraded(rows[name]):
            tell(f"{name}: {note}")
        if served is not None and (note := evaluation_tables.by_others(rows[name], served)):
            tell(f"{name}: {note}")
        # A model in this process draws every sample from numbers of its own; what an engine does cannot be seen.
        if served is not None and bench.sampling.temperature and (warning := evaluation_tables.repeated(rows[name])):
            tell(f"{name}: {warning}")
    return not any(row["errors"] for name in benches for row in rows[name])
