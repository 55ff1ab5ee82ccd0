"""Tamperings with a finished study's record, and the check that names each.

For the others, docs/reference/checks.md admits that no check can. Seven kinds are numbered below;
the eighth is other problems for a replication, and the ninth names that are exchanged in one
(tests/analysis/findings).
"""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from calling import Said, gspo_lab
from laboratory import json_of, recorded_anew
from matched_lab import (
    OTHER,
    PROBLEMS,
    RUNS,
    Lines,
    SealedLab,
    changed,
    failed,
    said,
    scaled,
    where,
    without,
)

from gspo_lab.analysis.matching import Match
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import GradeRecord
from gspo_lab.recording.store.ingest import rebuild
from gspo_lab.study import Declaration, digest
from gspo_lab.study.declaration import locked_of

DOCS = Path(__file__).parents[3] / "docs/reference/checks.md"
RUN = "gspo/s0"
WRONG = 15
"""A question that no run answers rightly, of the last evaluation unless said otherwise."""
ID = PROBLEMS[WRONG].id
RIGHT = changed(
    "answer", lambda one: one.update(correct=1, reward=1.0), bench="sums", step=4, problem=ID
)
CLIPS = ("clip_fraction_tokens", "clipped_tokens")

Tampering = Callable[[SealedLab], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SealedLab(tmp_path_factory.mktemp("whole")).folder


@pytest.fixture
def lab(whole: Path, tmp_path: Path) -> SealedLab:
    return SealedLab.copied(whole, tmp_path)


def study(edit: Callable[[JsonObject], Any], *, lock: bool = True, keep: bool = False) -> Tampering:
    """study.json is edited.

    With `lock` its digest is computed anew. With `keep` the former version stays among its
    versions.
    """

    def tamper(lab: SealedLab) -> None:
        def change(content: JsonObject) -> None:
            before = deepcopy(locked_of(content))
            edit(content)
            if lock:
                content["digest"] = digest(locked_of(content))
            if keep:
                content["superseded"] = [before]
                content["edits"] = [{"at": "2026-01-01", "what": "seeds added: 2"}]

        lab.edit_json("study.json", change)

    return tamper


def spec(runs: Sequence[str], edit: Callable[[JsonObject], Any]) -> Tampering:
    """run.json edited."""

    def tamper(lab: SealedLab) -> None:
        for run in runs:
            lab.edit_json(f"{run}/run.json", edit)

    return tamper


def rate(content: JsonObject) -> None:
    content["settings"]["update"]["learning_rate"] = 3e-4


def margin(content: JsonObject) -> None:
    content["verdict"]["margin"] = 0.5


def in_database(edit: Callable[[JsonObject], Any], *, lock: bool) -> Tampering:
    def tamper(lab: SealedLab) -> None:
        content = json_of(lab.home / "study.json")
        edit(content)
        if lock:
            content["digest"] = digest(locked_of(content))
        lab.sql("UPDATE studies SET content = '" + json.dumps(content).replace("'", "''") + "'")

    return tamper


def sql(*statements: str) -> Tampering:
    return lambda lab: lab.sql(*statements)


def sealed(edit: Callable[[Lines], Lines | None], *runs: str) -> Tampering:
    """All digests made anew; in every run where none is named."""
    return lambda lab: lab.everywhere(edit, list(runs) or RUNS)


def chained(edit: Callable[[Lines], Lines | None]) -> Tampering:
    return lambda lab: lab.chained(RUN, edit)


def rough(old: str, new: str) -> Tampering:
    return lambda lab: lab.rough(RUN, old, new)


def exchanged(*, renamed: bool) -> Tampering:
    """The journals of two arms exchanged; `renamed`: each then says that it is the other's."""

    def tamper(lab: SealedLab) -> None:
        items = {run: lab.items(run) for run in ("grpo/s0", "gspo/s0")}
        for run in items:
            other = items[f"{OTHER[run[:4]]}/s0"]
            if renamed:
                other[0]["run"] = f"toy/{run}"
            recorded_anew(lab.home / run, other)

    return tamper


def copied(
    *, renamed: bool = False, other_tokens: bool = False, own_answers: bool = False
) -> Tampering:
    """Seed 2 is a copy of seed 0 in both arms.

    It may say so or not. Its digests of step 0 and its answers may differ.
    """

    def tamper(lab: SealedLab) -> None:
        for arm in ("grpo", "gspo"):
            items = lab.items(f"{arm}/s0")
            if renamed:
                items[0]["run"] = f"toy/{arm}/s2"
            if other_tokens:
                step = next(where(items, "step", step=0))
                step.update(rollout_digest="other", logprob_digest="others")
            if own_answers:
                answered = where(lab.items(f"{arm}/s2"), "answer", bench="sums")
                items = [one for one in items if one.get("bench") != "sums"]
                items[-1:-1] = list(answered)
            recorded_anew(lab.home / f"{arm}/s2", items)

    return tamper


def places_exchanged(one: str, other: str) -> Tampering:
    """Two files or folders of the study, each put where the other was."""

    def tamper(lab: SealedLab) -> None:
        aside = lab.folder / "aside"
        for source, target in (
            (lab.home / one, aside),
            (lab.home / other, lab.home / one),
            (aside, lab.home / other),
        ):
            source.rename(target)

    return tamper


def evaluations_exchanged(items: Lines) -> None:
    """The first and the last."""
    for one in where(items, "answer", bench="sums"):
        one["step"] = {0: 4, 4: 0}.get(one["step"], one["step"])


def evaluation_of_another_seed(lab: SealedLab) -> None:
    better = list(where(lab.items("gspo/s2"), "answer", bench="sums", step=4))
    items = [one for one in lab.items(RUN) if (one.get("bench"), one["step"]) != ("sums", 4)]
    recorded_anew(lab.home / RUN, [*items[:-1], *better, items[-1]])


def problems_exchanged(items: Lines) -> None:
    """A question that is answered rightly counts as another one, and that as it."""
    names = {ID: PROBLEMS[0].id, PROBLEMS[0].id: ID}
    for one in where(items, "answer", bench="sums", step=4):
        one["problem"] = names.get(one["problem"], one["problem"])


def all_bands(lab: SealedLab) -> None:
    """The yardstick of clipping in study.json and every run.json."""
    bands = {"grpo": [0.1, 0.1], "gspo": [0.1, 0.1]}
    study(lambda s: s.update(reference_bands=bands))(lab)
    spec(RUNS, lambda run: run.update(reference_bands=bands))(lab)


def start_replaced(lab: SealedLab) -> None:
    start = lab.runs / "_starts" / "start"
    lab.model(start, "a better starting model")
    spec(RUNS, lambda run: run.update(warm_start=str(start)))(lab)


def weights_overwritten(lab: SealedLab) -> None:
    (lab.trained(RUN) / "model.safetensors").write_text("what another run has learned")


def last_step_cut(items: Lines) -> Lines:
    return [
        one
        for one in items
        if one["kind"] == "status" or one["step"] < 3 or one.get("bench") == "sums"
    ]


def last_line_behind(lab: SealedLab) -> None:
    with Journal(lab.home / RUN) as journal:
        journal.write([GradeRecord(bench="sums", step=4, problem=ID, sample=0, correct=1)])


def in_file(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[SealedLab], None]:
    """Whole lines of a journal are moved or deleted."""

    def tamper(lab: SealedLab) -> None:
        path = lab.journal(RUN)
        path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))

    return tamper


exchanged_lines = in_file(lambda lines: [*lines[:30], lines[31], lines[30], *lines[32:]])
line_deleted = in_file(lambda lines: lines[:30] + lines[31:])
last_word_deleted = in_file(lambda lines: lines[:-1])


def unsealed(items: Lines) -> None:
    del items[-1]["journal"], items[-1]["answers"]


def unsigned(items: Lines) -> None:
    del items[0]["run"], items[0]["declaration"]


def stripped(items: Lines) -> None:
    unsigned(items)
    unsealed(items)


def graded_by_hand(grader: str) -> Tampering:
    def tamper(lab: SealedLab) -> None:
        for run in RUNS:
            (lab.home / run / "grades").mkdir()
            with Journal(lab.home / run / "grades") as journal:
                grade = GradeRecord(
                    bench="sums", step=4, problem=ID, sample=0, correct=1, reward=1.0, grader=grader
                )
                journal.write([grade])

    return tamper


def another_sample(items: Lines) -> Lines:
    more = [
        {**one, "sample": 1, "text": said(True, WRONG)}
        for one in where(items, "answer", bench="sums", step=4)
    ]
    return [*items[:-1], *more, items[-1]]


def another_evaluation(items: Lines) -> Lines:
    more = [{**one, "step": 3} for one in where(items, "answer", bench="sums", step=4)]
    return [*items[:-1], *more, items[-1]]


def doubled(*names: str) -> Callable[[Lines], None]:
    return scaled("step", 2, *names)


def answers(**change: Any) -> Callable[[Lines], None]:
    return changed("answer", lambda one: one.update(change), bench="sums", problem=ID)


CAUGHT: dict[str, tuple[Tampering, set[str]]] = {
    # The declaration
    "the margin": (study(margin, lock=False), {"lock", "identity"}),
    "the margin, locked again": (study(margin), {"identity"}),
    "the margin, locked again, the old one kept": (study(margin, keep=True), {"identity"}),
    "the margin in the database": (
        in_database(margin, lock=False),
        {"lock", "identity", "journals"},
    ),
    "the margin in the database, locked again": (
        in_database(margin, lock=True),
        {"identity", "journals"},
    ),
    "alpha": (study(lambda s: s["verdict"].update(alpha=0.2)), {"identity"}),
    "how many evaluations are averaged": (
        study(lambda s: s["verdict"].update(last=1)),
        {"identity"},
    ),
    "the baseline": (study(lambda s: s["verdict"].update(baseline="gspo")), {"identity"}),
    "the primary benchmark": (study(lambda s: s["verdict"].update(primary="sums")), {"identity"}),
    "the seeds that count": (study(lambda s: s.update(seeds=[0, 1])), {"identity"}),
    "the question": (study(lambda s: s.update(question="Is it so?")), {"identity"}),
    "a claim added": (
        study(lambda s: s.update(claims=[{"name": "clips-more-tokens"}])),
        {"identity"},
    ),
    "a setting declared": (
        study(lambda s: s["arms"]["gspo"]["declared"].append("update.learning_rate")),
        {"identity", "declaration"},
    ),
    "earlier versions without a word on what changed": (
        study(lambda s: s.update(superseded=[locked_of(s)]), lock=False),
        {"lock"},
    ),
    "seeds taken away, the old declaration kept": (
        study(lambda s: s.update(seeds=[0, 2]), keep=True),
        {"lock"},
    ),
    "seeds added without a word, the old declaration kept": (
        study(lambda s: s.update(seeds=[0, 1, 2, 3]), keep=True),
        {"lock"},
    ),
    "a claim added, the old declaration kept": (
        study(lambda s: s.update(claims=[{"name": "clips-more-tokens"}]), keep=True),
        {"lock"},
    ),
    "alpha, the old declaration kept": (
        study(lambda s: s["verdict"].update(alpha=0.2), keep=True),
        {"lock"},
    ),
    # the fifth kind
    "an old declaration that never was": (
        study(
            lambda s: s.update(
                superseded=[{**locked_of(s), "seeds": [0, 1]}], added=[2], edits=[{"what": "x"}]
            )
        ),
        {"identity"},
    ),
    # What the runs were to do
    "a learning rate in one run.json": (
        spec([RUN], rate),
        {"settings", "declaration", "identity"},
    ),
    "a learning rate in all": (spec(RUNS, rate), {"declaration", "identity"}),
    "the yardstick of clipping": (
        spec(RUNS, lambda r: r["reference_bands"].update(gspo=[0.1, 0.1])),
        {"declaration"},
    ),
    "the yardstick of clipping in study.json too": (all_bands, {"declaration"}),
    "the yardstick in one journal": (
        sealed(lambda items: items[0]["facts"].update(reference_bands={"grpo": [0.1, 0.1]}), RUN),
        {"declaration", "other facts"},
    ),
    "settings in the database": (
        sql("UPDATE runs SET settings = replace(settings, '\"steps\":4', '\"steps\":3')"),
        {"declaration", "identity", "plan", "journals"},
    ),
    # the sixth kind
    "a run.json with another rate until the end, then put back": (
        sealed(scaled("update", 0.1, "learning_rate"), *RUNS[1::2]),
        {"plan"},
    ),
    # Whose journal it is: the first kind
    "journals of two arms exchanged": (exchanged(renamed=False), {"identity"}),
    "runs of two seeds exchanged, folder by folder": (
        places_exchanged("gspo/s0", "gspo/s2"),
        {"identity"},
    ),
    "run.json of two arms exchanged": (
        places_exchanged("grpo/s0/run.json", "gspo/s0/run.json"),
        {"declaration", "identity"},
    ),
    "a seed copied from another": (copied(), {"identity", "regraded"}),
    "the same, renamed": (copied(renamed=True), {"identity", "regraded"}),
    "the same, with another first step": (
        copied(renamed=True, other_tokens=True),
        {"identity", "regraded"},
    ),
    "the same, with answers of its own": (
        copied(renamed=True, other_tokens=True, own_answers=True),
        {"identity"},
    ),
    "another declaration in one journal": (
        sealed(lambda items: items[0].update(declaration="ab" * 32), RUN),
        {"identity"},
    ),
    "no name in one journal": (sealed(unsigned, RUN), {"identity"}),
    "no seal in one journal": (sealed(unsealed, RUN), {"sealed answers"}),
    "other starting weights": (
        sealed(lambda items: items[0]["facts"].update(weights="cc" * 32), RUN),
        {"weights"},
    ),
    "another starting model in one journal": (
        sealed(lambda items: items[0]["facts"].update(start="dd" * 32), RUN),
        {"other facts", "journals"},
    ),
    "the starting model replaced": (start_replaced, {"journals"}),
    "trained models of two arms exchanged": (
        places_exchanged("grpo/s0/checkpoints/final", "gspo/s0/checkpoints/final"),
        {"journals"},
    ),
    # the second kind
    "trained weights overwritten": (weights_overwritten, {"journals"}),
    "a trained model replaced, its list of files too": (
        lambda lab: lab.model(lab.trained(RUN), "what another run has learned"),
        {"journals"},
    ),
    # What is there
    "a last step cut, yet finished": (sealed(last_step_cut, RUN), {"plan"}),
    "a last step cut in all runs": (sealed(last_step_cut), {"plan"}),
    "a last step cut, not sealed again": (chained(last_step_cut), {"plan", "journals"}),
    "a step in the middle cut": (sealed(without("step", step=2)), {"plan"}),
    "an update cut": (sealed(without("update", step=2, minibatch=1)), {"plan"}),
    "the last evaluation cut": (sealed(without("answer", bench="sums", step=4)), {"plan"}),
    "an evaluation that was not due": (sealed(another_evaluation), {"plan"}),
    "problems dropped from both arms": (
        sealed(without("answer", step=4, problem=ID)),
        {"plan", "regraded"},
    ),
    "problems dropped from everything": (sealed(without("answer", problem=ID)), {"regraded"}),
    # the third kind, and the next one
    "the first and the last evaluation of a run exchanged": (
        sealed(evaluations_exchanged, RUN),
        {"base score"},
    ),
    "a last evaluation of another seed": (evaluation_of_another_seed, {"regraded"}),
    # the fourth kind
    "two problems of both arms exchanged": (sealed(problems_exchanged), {"regraded"}),
    "a second answer to each problem": (sealed(another_sample), {"plan", "regraded"}),
    "answers deleted from the database": (
        sql(f"DELETE FROM answers WHERE problem = '{ID}'"),
        {"sealed answers", "journals", "regraded"},
    ),
    # What was answered
    "a grade in the journal": (
        rough('"reward":0.0,"correct":0', '"reward":1.0,"correct":1'),
        {"journals", "plan"},
    ),
    "a grade, chained": (chained(RIGHT), {"sealed answers", "journals", "regraded"}),
    "a grade, sealed": (sealed(RIGHT, RUN), {"regraded"}),
    "a grade in all runs, sealed": (sealed(RIGHT), {"regraded"}),
    "a grade in the database": (
        sql(f"UPDATE answers SET correct = 1 WHERE problem = '{ID}' AND step = 4"),
        {"sealed answers", "journals", "regraded"},
    ),
    "a grade taken back in the database": (
        sql(
            "UPDATE answers SET correct = NULL, error = 'timeout' WHERE run_id LIKE '%gspo%' AND"
            " correct = 0"
        ),
        {"sealed answers", "journals", "regraded", "base score"},
    ),
    "a later grade by hand": (graded_by_hand("addition/1"), {"regraded"}),
    "a later grade by a grader that is not here": (graded_by_hand("mine/9"), {"regraded"}),
    "a later grade in the database": (
        sql(
            "INSERT INTO grades (run_id, evaluation, bench, step, problem, sample, position,"
            f" correct, grader) VALUES ('toy/{RUN}', '', 'sums', 4, '{ID}', 0, 0, 1, 'addition/1')"
        ),
        {"journals", "regraded"},
    ),
    "an answer's text": (sealed(answers(text=said(True, WRONG))), {"regraded"}),
    "a reference in both arms": (
        sealed(answers(reference="1000000", correct=1, reward=1.0)),
        {"regraded"},
    ),
    "a prompt in both arms": (sealed(answers(prompt="1+1=")), {"regraded"}),
    "an answer's seed": (sealed(answers(sample_seed=7)), {"regraded"}),
    # What was measured
    "a column scaled, not sealed again": (
        chained(scaled("update", 2, "log_ratio_max_abs")),
        {"journals"},
    ),
    "a column scaled in the database": (sql("UPDATE updates SET loss = 2 * loss"), {"journals"}),
    # the seventh kind
    "tokens of one run doubled with their lengths": (
        sealed(
            doubled("tokens_sampled_total", "tokens_trained_total", "response_tokens_mean"), RUN
        ),
        {"first counts"},
    ),
    "FLOPs of one run doubled": (sealed(doubled("flops_total"), RUN), {"first counts"}),
    "FLOPs doubled in the database": (
        sql("UPDATE steps SET flops_total = 2 * flops_total"),
        {"journals"},
    ),
    # The file
    "a line deleted": (line_deleted, {"journals"}),
    "two lines exchanged": (exchanged_lines, {"journals"}),
    "a record behind the last word": (last_line_behind, {"journals"}),
    "a run's state in the database": (sql("UPDATE runs SET state = 'failed'"), {"journals"}),
    "a text that keeps the file's size and time": (
        chained(
            changed(
                "answer", lambda one: one.update(text="#1000001"), bench="sums", step=4, problem=ID
            )
        ),
        {"sealed answers", "journals"},
    ),
}
"""What is done, and checks that fail by it; no verdict is then said."""

ADMITTED: dict[str, tuple[Tampering, str]] = {
    "every answer's text with its grade": (
        sealed(
            answers(
                text=said(True, WRONG), correct=1, reward=1.0, extracted=PROBLEMS[WRONG].reference
            )
        ),
        "texts and grades forged together",
    ),
    "columns that no other column tells of": (
        sealed(scaled("update", 2, "loss")),
        "columns that no other tells of",
    ),
    "FLOPs of all runs": (sealed(doubled("flops_total")), "columns that no other tells of"),
    "times, each with its sum": (
        sealed(scaled("step", 0.5, "seconds_step", "device_seconds_total")),
        "times",
    ),
    "whether answers were cut": (sealed(answers(truncated=1)), "columns that no other tells of"),
    "the device of all workers": (
        sealed(lambda items: items[0]["facts"].update(device="a large GPU")),
        "what all workers say of themselves alike",
    ),
    "every name and seal taken away": (
        lambda lab: (sealed(stripped)(lab), spec(RUNS, lambda run: run.pop("declaration"))(lab)),
        "all digests taken away",
    ),
    "the day on which the study was declared": (
        study(lambda s: s.update(created="2020-01-01T00:00:00+00:00")),
        "dates",
    ),
}
"""What is done, and the words of docs/reference/checks.md that say that it cannot be seen."""


def test_what_nobody_touched_passes_every_check(lab: SealedLab) -> None:
    found = lab.certified()
    assert found.ok
    assert failed(found) == set()
    assert {check.name: check.state for check in found.of_the_study} == {
        "declared runs": "equal",
        "journals": "equal",
        "regraded": "equal",
    }
    # 3 evaluations x 20 problems x 6 runs
    assert "360 answers graded again" in found.of("regraded")[0][1].detail
    assert found.headline == "toy: matched (30 checks, 3 comparisons of two runs)"


def test_asking_more_often_where_it_decides_is_as_planned(tmp_path: Path) -> None:
    lab = SealedLab(tmp_path, bench="decisive_samples = 2\ndecisive_evaluations = 1")
    found = lab.certified()
    assert found.ok, found.reasons
    # (1 + 1 + 2 answers) x 20 problems x 6 runs
    assert "480 answers graded again" in found.of("regraded")[0][1].detail
    lab.everywhere(without("answer", bench="sums", step=4, sample=1))
    assert failed(lab.certified()) == {"plan", "regraded"}


@pytest.mark.parametrize("what", CAUGHT)
def test_a_tampering_is_named_and_no_verdict_said(lab: SealedLab, what: str) -> None:
    tamper, names = CAUGHT[what]
    tamper(lab)
    found = lab.certified()
    assert not found.ok
    assert failed(found) >= names, failed(found)
    assert found.reasons[next(iter(found.reasons))]


@pytest.mark.parametrize(("keep", "check"), [(False, "identity"), (True, "lock")])
def test_names_of_a_contrast_that_were_swapped_withhold_it(
    tmp_path: Path, keep: bool, check: str
) -> None:
    named = '[verdict]\ncontrast = { grpo = -1, gspo = 1 }\nnames = ["the new", "the old"]'
    lab = SealedLab(tmp_path, bench=named)
    study(lambda s: s["verdict"]["names"].reverse(), keep=keep)(lab)
    assert failed(lab.certified()) == {check}
    assert lab.verdict()["word"] == "no verdict"


@pytest.mark.parametrize("what", ADMITTED)
def test_what_cannot_be_seen_is_admitted(lab: SealedLab, what: str) -> None:
    tamper, words = ADMITTED[what]
    tamper(lab)
    assert lab.certified().ok
    assert f"* *{words[0].upper()}{words[1:]}*" in DOCS.read_text(encoding="utf-8").replace(
        ".*", "*"
    )


def test_arms_that_were_added_are_those_that_the_first_declaration_lacks(lab: SealedLab) -> None:
    """Whatever the edits say: these are under no digest."""
    content = json_of(lab.home / "study.json")
    first = locked_of(content) | {"arms": {"grpo": content["arms"]["grpo"]}}
    grown = content | {"superseded": [first], "edits": [{"what": "a word was corrected"}]}
    assert Declaration.parse(grown, "study.json").arms_added == ("gspo",)


def test_an_arm_that_is_taken_away_is_no_growth(lab: SealedLab) -> None:
    content = json_of(lab.home / "study.json")
    fewer = content | {
        "superseded": [locked_of(content)],
        "arms": {"grpo": content["arms"]["grpo"]},
    }
    assert Declaration.parse(fewer, "study.json").not_grown == ("arms taken away: gspo",)


def test_the_odds_that_a_sample_finds_what_was_changed() -> None:
    """Of 7,168 answers some are changed: 1 less the share of samples that hold none of these."""
    text = DOCS.read_text(encoding="utf-8")
    for changed_ones, line in ((1, "1 changed answer"), (12, "any of 12")):
        shown = [
            float(cell)
            for cell in (
                text.partition(f"| chance to find {line} |")[2].partition("\n")[0].split("|")[:4]
            )
        ]
        odds = [
            1 - math.comb(7168 - changed_ones, n) / math.comb(7168, n)
            for n in (100, 1000, 5000, 7168)
        ]
        assert shown == pytest.approx(odds, abs=5e-4)


def test_a_run_whose_last_word_is_gone_is_not_finished(lab: SealedLab) -> None:
    last_word_deleted(lab)
    lab.certified()
    assert lab.verdict()["word"] == "no verdict"


def test_runs_without_any_digest_are_shown_as_not_recorded(lab: SealedLab) -> None:
    ADMITTED["every name and seal taken away"][0](lab)
    found = lab.certified()
    assert {"identity", "plan", "sealed answers", "journals"} <= {
        name for name, states in found.states().items() if states[Match.UNKNOWN]
    }
    assert lab.verdict()["word"] == "better by more than the margin"


def command(lab: SealedLab, name: str) -> Said:
    pages = ["--output-dir", lab.folder] if name == "report" else []
    return gspo_lab(name, "toy", "--runs", lab.runs, *pages)


@pytest.mark.parametrize("gone", [["gspo/s1"], ["grpo/s2", "gspo/s2"], RUNS])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_declared_run_without_a_record_is_named(
    lab: SealedLab, gone: list[str], rebuilt: bool
) -> None:
    """Also after the database was made again, also a whole seed, also all of them."""
    for run in gone:
        shutil.rmtree(lab.home / run)
    if rebuilt:
        rebuild(lab.runs)
    found = lab.certified()
    (_, check), *_ = found.of("declared runs")
    assert not found.ok
    assert sorted(check.parts) == sorted(gone)
    assert f"{check.parts[0]} is declared and has no record" in check.detail
    assert "NOT matched" in found.summary
    assert command(lab, "certify").code == 1


def test_a_run_of_an_arm_that_study_json_lost_is_named_and_nothing_fails(lab: SealedLab) -> None:
    lab.edit_json("study.json", lambda content: content["arms"].pop("gspo"))
    found = lab.certified()
    (_, check), *_ = found.of("declared runs")
    assert check.parts == ("gspo/s0", "gspo/s1", "gspo/s2")
    for name in ("show", "report", "claims"):
        assert command(lab, name).code == 0, name


def test_an_unknown_key_of_study_json_is_refused(lab: SealedLab) -> None:
    lab.edit_json("study.json", lambda content: content.update(favourite="gspo"))
    refused = command(lab, "show")
    assert refused.code == 2
    assert "toy/study.json has the unknown key 'favourite'" in refused.err
