"""`gspo-lab eval` of models in this process: folders, built-in models, runs.

They are killed, finished and refused.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from asking import BENCH, SMALL, declared_runs, done, kept, save_model, write_task
from assertions import assert_fields
from calling import gspo_lab, rows
from case_tables import cases
from laboratory import json_of

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of
from gspo_lab.tasks.evaluation.evaluated_models import model_subject
from gspo_lab.tasks.evaluation.evaluation_run import evaluate_subject
from gspo_lab.training.models.builtin_models import build

STUDY = """\
question = "Which of two that nobody has trained?"
model = "tiny-qwen3"
steps = 4
seeds = [0, 1]

[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
max_tokens = 5

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""
OWN_BENCHMARK = """\
question = "Does it win?"
model = "tiny-qwen3"
task = "addition"
steps = 4
seeds = [0]

[[bench]]
name = "mine"
task = { name = "lottery.py:grade", problems = "problems.jsonl" }
samples = 2
temperature = 0.5
max_tokens = 3

[arm.gspo]
objective = "gspo"
"""


def asking(model: object, *more: object) -> tuple[object, ...]:
    options = ("--data", "problems.jsonl", "--samples", 2, "--max-tokens", 6, "--json")
    return ("eval", "--bench", BENCH, "--model", model, *options, *more)


def test_a_dead_model_is_not_asked_and_gets_nothing_right(here: Path, problems: Path) -> None:
    save_model(here / "mine", seed=1)
    model = build("tiny-qwen3", 1, SMALL)
    with torch.no_grad():
        model.model.norm.weight[3] = torch.nan
    model.save_pretrained(here / "mine")
    asked = done(*asking("mine"))
    assert (
        "its weights are not finite (model.norm.weight; 1 of 13 tensors), so it was not asked"
        in asked.err
    )
    [score] = json.loads(asked.out)["scores"]
    assert score["score"] == 0.0
    reasons = rows(here / "runs", "select distinct reason, correct, tokens from answers")
    assert reasons == [
        ("not asked, its weights are not finite (model.norm.weight; 1 of 13 tensors)", 0, 0)
    ]


def test_a_folder_is_asked_once_and_other_weights_in_it_anew(here: Path, problems: Path) -> None:
    save_model(here / "mine", seed=1)
    first = done(*asking("mine"))
    (row,) = first.json["scores"]
    assert row["run_id"].startswith("_subjects/mine-")
    assert row["limits"]["context"] == 4096
    every = f": {row['answers']} of {row['answers']}"
    assert any(every in line for line in first.err.splitlines()), "a log shows how far it is"
    assert gspo_lab(*asking(here / "mine")).json == first.json
    lines = kept(here / "runs")
    assert lines == row["answers"] == 2 * row["problems"]

    save_model(here / "mine", seed=2)
    second = gspo_lab(*asking("mine"))
    assert second.json["scores"][0]["run_id"] != row["run_id"]
    assert kept(here / "runs") == 2 * lines
    shown = gspo_lab("show", row["run_id"], "--json").json
    assert shown[0]["name"] == str(here / "mine")
    assert [one["evaluation"] for one in shown] == [row["evaluation"]]
    listed = gspo_lab("show").out
    assert "no studies yet" in listed
    assert all(said.json["scores"][0]["run_id"] in listed for said in (first, second))


def test_a_seed_is_a_subjects_own(here: Path, problems: Path) -> None:
    one = gspo_lab(*asking("tiny-qwen3", "--seed", 0)).json["scores"][0]
    two = gspo_lab(*asking("tiny-qwen3", "--seed", 1)).json["scores"][0]
    again = gspo_lab(*asking("tiny-qwen3", "--seed", 0)).json["scores"][0]
    assert (one["run_id"] != two["run_id"], one == again) == (True, True)
    names = (one["run_id"], two["run_id"])
    (beside,) = gspo_lab("report", *names, "--json").json["models"]["evaluations"].values()
    apart = beside["differences"][two["run_id"]]["estimate"]
    assert apart == pytest.approx(two["score"] - one["score"], abs=1e-5)
    for beside_models in (
        ["study"],
        ["--watch"],
        ["--include", "mine"],
        ["--accept-mismatch", "why"],
    ):
        refused = gspo_lab("report", names[0], *beside_models)
        assert (refused.code, "name no study" in refused.err) == (2, True), beside_models


def test_several_benchmarks_at_once(here: Path, problems: Path) -> None:
    benches = ("--bench", BENCH, "--bench", "addition", "--data", f"{BENCH}=problems.jsonl")
    command = ("eval", *benches, "--model", "tiny-qwen3", "--limit", 3, "--max-tokens", 4)
    said = gspo_lab(*command, "--json")
    assert [(row["bench"], row["problems"]) for row in said.json["scores"]] == [
        (BENCH.replace(":", "-"), 3),
        ("addition", 3),
    ]
    table = " ".join(gspo_lab(*command).out.split())
    assert "temperature 1, top-p 1, token limit 4, prompt bare/1, grader addition/1" in table


def test_what_was_declared_otherwise_is_refused(here: Path, problems: Path) -> None:
    said = gspo_lab(*asking("tiny-qwen3"))
    (path,) = (here / "runs").rglob("evaluation.json")
    declared = json_of(path)
    write_json(path, {**declared, "lab_version": "0.0.9"})
    refused = gspo_lab(*asking("tiny-qwen3"))
    assert refused.code == 2
    assert "lab_version (0.0.9, now " in refused.err.splitlines()[-1]
    path.write_text(json.dumps(declared))
    assert gspo_lab(*asking("tiny-qwen3")).json == said.json
    # A grader that was changed makes another evaluation, not a mixture.
    grader = here / "lottery.py"
    grader.write_text(grader.read_text() + "\n")
    bench = bench_of(
        BENCH, {"problems": "problems.jsonl"}, here, BenchmarkOverrides(samples=2, max_tokens=6)
    )
    assert bench.evaluation != declared["evaluation"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    cases(__file__, "a_model_that_cannot_be_asked_is_one_line"),
)
def test_a_model_that_cannot_be_asked_is_one_line(
    here: Path,
    problems: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Strings,
    told: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(here / "hub"))
    for name in ("hollow", "empty"):
        (here / name).mkdir()
    (here / "hollow" / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    said = gspo_lab(*asking(*arguments))
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert told in line
    assert not (here / "runs").exists()


def test_runs_that_start_alike_answer_once(here: Path, problems: Path) -> None:
    """Four runs of two seeds from one start.

    The ends of one seed are made alike too; those of the other differ.
    """
    start = save_model(here / "start", seed=0)
    runs = here / "runs"
    for run, folder in declared_runs(here, "alike", STUDY, start):
        save_model(
            folder / "checkpoints" / "final",
            seed=9 if run.seed == 1 else len(run.arm + run.arm[1]) + run.seed,
        )
        if run.arm == "gspo" and run.seed == 0:
            model = build("tiny-qwen3", 3, SMALL)
            with torch.no_grad():
                model.model.embed_tokens.weight.mul_(3)
            model.save_pretrained(folder / "checkpoints" / "final")
    said = done("eval", "--bench", BENCH, "--samples", 2, "--json")
    scores = {(row["run_id"], row["step"]): row for row in said.json["scores"]}
    assert len(scores) == 8
    query = (
        "SELECT problem, sample, sample_seed, text FROM answers WHERE run_id = '{}' AND step = {}"
        " ORDER BY 1, 2"
    )
    texts = {key: rows(runs, query.format(*key)) for key in scores}
    for seed in (0, 1):
        assert texts[f"alike/grpo/s{seed}", 0] == texts[f"alike/gspo/s{seed}", 0]
    assert texts["alike/grpo/s1", 4] == texts["alike/gspo/s1", 4]
    assert texts["alike/grpo/s0", 4] != texts["alike/gspo/s0", 4]
    assert texts["alike/grpo/s0", 0] != texts["alike/grpo/s1", 0]
    (compared,) = said.json["comparisons"]
    assert_fields(compared, arm="gspo", against="grpo", seeds=2)
    difference = [
        scores[f"alike/gspo/s{s}", 4]["score"] - scores[f"alike/grpo/s{s}", 4]["score"]
        for s in (0, 1)
    ]
    assert compared["difference"] == pytest.approx(sum(difference) / 2)
    assert compared["low"] is None
    assert "2 pairs of runs; an interval needs" in compared["note"]

    # Asked one by one, the twin that did not answer itself says just what it was said to have said.
    other = here / "other"
    shutil.copytree(runs, other)
    for path in other.rglob("evaluations"):
        shutil.rmtree(path)
    gspo_lab(
        "eval",
        "--bench",
        BENCH,
        "--samples",
        2,
        "--run",
        "alike/gspo/s1",
        "--runs",
        "other",
        "--json",
    )
    query = (
        "SELECT problem, sample, step, text, correct FROM answers WHERE run_id = 'alike/gspo/s1'"
        " ORDER BY 1, 2, 3"
    )
    assert rows(other, query) == rows(runs, query)


def test_a_start_that_has_gone_is_named(here: Path, problems: Path) -> None:
    run, folder = declared_runs(here, "lost", STUDY, here / "starts" / "lost")[0]
    save_model(folder / "checkpoints" / "final", seed=1)
    said = gspo_lab("eval", "--bench", BENCH, "--run", run.id)
    assert (said.code, said.out) == (2, "")
    assert (
        f"{here / 'starts' / 'lost'} has gone; gspo-lab run STUDY.toml --name NEW"
        in said.err.splitlines()[-1]
    )


def test_prompts_that_fill_the_context_are_wrong_without_being_asked(here: Path) -> None:
    lines = [{"id": str(n), "prompt": "x" * n, "reference": ""} for n in (1, 10, 30, 31, 32, 40)]
    (here / "lottery.py").write_text("def grade(problem, answer):\n    return 1.0\n")
    for name, kept_lines in (("problems.jsonl", lines[:1]), ("held.jsonl", lines[1:])):
        (here / name).write_text("".join(json.dumps(line) + "\n" for line in kept_lines))
    model = build("tiny-qwen3", 0, SMALL)
    model.config.max_position_embeddings = 32
    model.save_pretrained(save_model(here / "short", 0))
    options = {"problems": "problems.jsonl", "held_out": "held.jsonl", "max_tokens": 8}
    bench = bench_of(BENCH, options, here, BenchmarkOverrides(samples=3))
    subject = model_subject(here / "runs", "short", device="cpu")
    counted: list[int] = []
    assert evaluate_subject(subject, bench, counted.append).missing == 0
    assert sum(counted) == 15
    (path,) = (here / "runs").rglob("journal.jsonl")
    first, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["run"] == subject.id
    for record in records:
        left = max(0, 32 - int(record["problem"]))
        assert record["tokens"] <= min(8, left)
        assert record["correct"] == int(left > 0)
        assert record["truncated"] or record["tokens"] < min(8, left) or left > 0
        assert record["reason"].startswith("not asked") == (left == 0) if left == 0 else True
    limits = json_of(path.with_name("evaluation.json"))["limits"]
    assert_fields(limits, context=32, lowest=0, highest=8, lowered_by="context")


def test_a_name_tells_evaluations_apart(here: Path, problems: Path) -> None:
    options = {"problems": "problems.jsonl"}
    wishes: list[JsonObject] = [
        {},
        {"samples": 2},
        {"temperature": 0.5},
        {"temperature": 0.5001},
        {"top_p": 0.5},
    ]
    wishes += [{"max_tokens": 256}, {"problems": 2}]
    names = {
        bench_of(BENCH, options, here, BenchmarkOverrides(**wish)).evaluation for wish in wishes
    }
    assert len(names) == len(wishes)
    (here / "problems.jsonl").write_text(
        (here / "problems.jsonl").read_text().replace("ticket", "lot")
    )
    assert bench_of(BENCH, options, here, BenchmarkOverrides()).evaluation not in names


MINE = """\
def grade(problem, answer, turns=()):
    return float((len(answer) + len(turns)) % 2)


def reply(problem, turns):
    return None if turns[-1].text.startswith("a") else f"({len(turns)})"
"""
STUDY_OF_TURNS = """\
question = "Who can let an environment reply?"
model = "tiny-qwen3"
seeds = [0]
[task]
name = "mine.py:grade"
problems = "p.jsonl"
reply = "reply"
stop = ["e"]
max_tokens = 30
[arm.grpo]
objective = "grpo"
"""


@pytest.fixture
def mine(here: Path) -> Path:
    (here / "mine.py").write_text(MINE)
    (here / "p.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{n}?", "reference": ""}) + "\n" for n in range(30))
    )
    return here


def test_transcripts_are_kept_and_graded_again(here: Path) -> None:
    done("eval", "--bench", "guess", "--model", "tiny-qwen3", "--limit", 4, "--json")
    answers = rows(here / "runs", "select problem, text, turns, tokens, reward from answers")
    assert len(answers) == 4
    for _, text, turns, tokens, reward in answers:
        told = json.loads(turns)
        assert tokens == sum(turn["tokens"] for turn in told)
        assert reward == pytest.approx(sum(turn["reward"] for turn in told))
        assert told[0]["text"] in text
    graded = done(
        "records",
        "regrade",
        "_subjects/" + rows(here / "runs", "select run_id from subjects")[0][0].split("/")[-1],
    )
    assert "no verdict changed" in graded.out


def test_a_server_is_not_asked_for_turns(here: Path) -> None:
    server = ("--server", "http://127.0.0.1:9/v1", "--model", "any")
    said = gspo_lab("eval", "--bench", "guess", "--limit", 2, *server)
    assert said.code == 2
    assert "its answers have up to 5 turns, and a server gives one" in said.err
    assert not list((here / "runs").rglob("evaluation.json"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            '[engine]\nname = "verl"',
            "the engine 'verl' cannot train on or ask 'mine.py:grade', whose responses have",
        ),
        (
            '[rollout]\nsampler = "old.py:Old"',
            "the sampler 'old.py:Old' does not go on with a response",
        ),
    ],
)
def test_who_cannot_reply_is_refused_before_anything_starts(
    mine: Path, change: str, told: str
) -> None:
    (mine / "old.py").write_text(
        "class Old:\n    def __init__(self, model, tokenizer, dtype, rows): pass\n"
        + "".join(
            f"    def {name}(self, *a, **k): pass\n"
            for name in ("sample", "refresh", "pause", "facts")
        )
    )
    (mine / "s.toml").write_text(f"{STUDY_OF_TURNS}{change}\n")
    said = gspo_lab("plan", "s.toml")
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_credit_by_turns_wants_turns_and_groups(mine: Path) -> None:
    credited = STUDY_OF_TURNS + 'turn_credit = "turn"\n'
    for text, told in [
        (
            credited.replace("reply =", "# reply ="),
            "'turn' with the task 'mine.py:grade', whose responses have one turn",
        ),
        (credited + 'advantage = "batch-std"\n', "turns are compared within their group"),
    ]:
        (mine / "s.toml").write_text(text)
        said = gspo_lab("plan", "s.toml")
        assert said.code == 2
        assert told in said.err
    (mine / "s.toml").write_text(credited)
    assert gspo_lab("plan", "s.toml").code == 0


def test_a_study_s_own_benchmark_is_known_by_its_name(here: Path) -> None:
    write_task(here)
    ((_, folder),) = declared_runs(here, "small", OWN_BENCHMARK, save_model(here / "start", 0))
    save_model(folder / "checkpoints" / "final", 1)
    said = done("eval", "--bench", "mine", "--json").json
    (protocol,) = said["asked"].values()
    assert protocol["task"]["name"] == "lottery.py:grade"
    assert_fields(protocol, samples=2, temperature=0.5, max_tokens=3)
    changed = done("eval", "--bench", "mine", "--samples", 1, "--json").json
    assert {row["samples"] for row in changed["scores"]} == {1}
    other = done("eval", "--bench", "mine", "--study", "small", "--model", "start", "--json").json
    assert {row["samples"] for row in other["scores"]} == {2}
    unknown = gspo_lab("eval", "--bench", "mein")
    assert unknown.code == 2
    assert "mine" in unknown.err
