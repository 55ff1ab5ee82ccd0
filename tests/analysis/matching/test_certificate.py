"""The certificate of studies whose every record is known, before and after tampering."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import gspo_lab, lab_error
from laboratory import json_of, source
from matched_lab import FACTS, Lab, Lines, answer, history, ids, odd_ones, of, rolling

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.matching import Check, Match
from gspo_lab.analysis.matching.certificate import grouped
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.recording.records import AnswerRecord, Record, StepRecord, UpdateRecord
from gspo_lab.study import Run, digest
from gspo_lab.study.declaration import LOCKED

CHECKS = [
    "settings",
    "declaration",
    "code",
    "packages",
    "device",
    "numerics",
    "restarts",
    "weights",
    "tokenizer",
    "chat template",
    "other facts",
    "grader",
    "prompts",
    "first rollout",
    "first log-probs",
    "first rewards",
    "first counts",
    "first mini-batches",
    "prompts and updates",
    "benchmark protocol",
    "benchmark items",
    "benchmark grader",
    "base score",
    "identity",
    "plan",
    "sealed answers",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Lab(tmp_path_factory.mktemp("whole")).folder


@pytest.fixture
def lab(whole: Path, tmp_path: Path) -> Lab:
    return Lab.copied(whole, tmp_path)


def test_matched_runs_pass_every_check(lab: Lab) -> None:
    found = lab.certificate()
    assert [(pair.arms, pair.seed) for pair in found.pairs] == [
        (("grpo", "gspo"), seed) for seed in range(3)
    ]
    assert [check.name for check in found.pairs[0].checks] == CHECKS
    states = {check.name: check.state for check in found.pairs[1].checks}
    assert states.pop("settings") == "differs as declared"
    assert set(states.values()) == {"equal"}
    assert found.lock.state == "equal"
    assert_fields(found, ok=True, undeclared=(), reasons={})
    assert of(found, "settings").parts == (
        "objective.clip_high",
        "objective.clip_low",
        "objective.importance_sampling_level",
        "objective.preset",
    )
    assert found.headline == "toy: matched (27 checks, 3 comparisons of two runs)"
    assert lab.verdict()["word"] == "better by more than the margin"


def _swapped(seed: int, step: int) -> list[str]:
    asked = ids(seed, step)
    return [asked[1], asked[0], *asked[2:]] if step == 2 else asked


def _swap_prompts(lines: Lines) -> None:
    """As if the worker had asked two prompts of step 2 in the other order."""
    digests = rolling(0, lambda step: _swapped(0, step))
    for line in lines:
        if line["kind"] == "step":
            line["prompt_digest"] = digests[line["step"]]


def _swap_items(lines: Lines) -> None:
    places = [
        i for i, line in enumerate(lines) if line.get("bench") == "sums" and line["step"] == 2
    ]
    lines[places[4]], lines[places[5]] = lines[places[5]], lines[places[4]]


def _flip_bit(digits: str) -> str:
    return digits[:-1] + format(int(digits[-1], 16) ^ 1, "x")


def _rate(content: JsonObject) -> None:
    content["settings"]["update"]["learning_rate"] = 3e-4


def _temperature(content: JsonObject) -> None:
    content["settings"]["bench"][0]["temperature"] = 0.5


def _one_wrong_fact_each(lab: Lab) -> None:
    packages = {"torch": "2.13.1", "numpy": "2.4.6"}
    flags = {"OMP_NUM_THREADS": "1"}
    digests = {
        "weights": _flip_bit(FACTS["weights"]),
        "tokenizer": "cc" * 32,
        "chat_template": "cc" * 32,
    }
    others = {"grader": "addition/2", "code": "4567def", "device": "a GPU", "driver": "9"}
    lab.set_facts("gspo/s0", packages=packages, flags=flags, **digests, **others)


def _one_wrong_record_each(lab: Lab) -> None:
    lab.set_of("gspo/s0", "answer", {"prompt": "2+2?"}, bench="rollout", problem="train-0-3-1")
    first = {"rollout_digest": "other", "logprob_digest": "other", "reward_mean": 0.75}
    lab.set_of("gspo/s0", "step", first, step=0)
    lab.set_of("gspo/s0", "update", {"log_ratio_max_abs": 1e-7}, step=3, minibatch=0)
    lab.set_of("gspo/s0", "answer", {"grader": "addition/2"}, bench="sums", step=4)
    lab.set_of("gspo/s0", "answer", {"reference": "2"}, bench="sums", step=4, problem="held-7")
    lab.set_of("gspo/s0", "answer", {"correct": 1}, bench="sums", step=0, problem="held-9")


SIGNED = ("run", "declaration", "journal", "answers")
"""What tells whose record it is."""

TAMPERINGS: dict[str, tuple[Callable[[Lab], None], dict[str, Strings], set[str], Strings]] = {
    "a setting": (
        lambda lab: lab.edit_json("gspo/s0/run.json", _rate),
        {"settings": ("update.learning_rate",)},
        {"declaration", "identity", "plan"},
        ("update.learning_rate: 0.0001 in grpo, 0.0003 in gspo",),
    ),
    "a benchmark's temperature": (
        lambda lab: lab.edit_json("gspo/s0/run.json", _temperature),
        {"benchmark protocol": ("bench.0.temperature",)},
        {"declaration", "identity"},
        (),
    ),
    "declared keys": (
        lambda lab: lab.edit_json(
            "gspo/s0/run.json", lambda run: run["declared"].append("update.learning_rate")
        ),
        {"declaration": ("gspo: declared keys",)},
        set(),
        ("toy/gspo/s0 declares",),
    ),
    "facts": (
        _one_wrong_fact_each,
        {
            **{name: (name,) for name in ("weights", "tokenizer", "code", "device")},
            "chat template": ("chat_template",),
            "grader": ("addition/2",),
            "packages": ("torch",),
            "numerics": ("CUBLAS_WORKSPACE_CONFIG",),
            "other facts": ("driver",),
        },
        set(),
        (
            "chat_template: unset in grpo, cccccccccccc in gspo",
            "addition/1 in grpo, addition/1, addition/2 in gspo",
            "CUBLAS_WORKSPACE_CONFIG: :4096:8 in grpo, unset in gspo",
        ),
    ),
    "records": (
        _one_wrong_record_each,
        {
            "prompts": ("step 3, texts",),
            "first rollout": ("step 0",),
            "first log-probs": ("step 0",),
            "first rewards": ("reward_mean",),
            "first mini-batches": ("gspo, step 3",),
            "base score": ("sums",),
            "benchmark grader": ("sums by addition/2",),
            "benchmark items": ("sums, step 4",),
        },
        set(),
        (
            "the texts or references kept of step 3 differ",
            "tokens both 0 0 in grpo, other in gspo",
            "reward_mean at step 0: 0.5 in grpo, 0.75 in gspo",
            "toy/gspo/s0 at step 3: log_ratio_max_abs 1e-07",
            "question 7, held-7, has another reference",
            "sums: 0.4 in grpo, 0.45 in gspo",
        ),
    ),
    "the order of two prompts": (
        lambda lab: lab.edit_journal("gspo/s0", _swap_prompts),
        {"prompts": ("step 2",)},
        set(),
        ("the streams of prompts part at step 2",),
    ),
    "the order of two items": (
        lambda lab: lab.edit_journal("gspo/s0", _swap_items),
        {"benchmark items": ("sums, step 2",)},
        set(),
        ("question 4 is held-4 #0 in grpo, held-5 #0 in gspo",),
    ),
    "an evaluation left out": (
        lambda lab: lab.edit_journal(
            "gspo/s0", lambda ls: [x for x in ls if (x.get("bench"), x["step"]) != ("sums", 2)]
        ),
        {"benchmark items": ("sums, step 2",)},
        {"plan"},
        ("only one run evaluated sums after step 2",),
    ),
    "a base answer's words": (
        lambda lab: lab.set_of(
            "gspo/s0", "answer", {"text": "9: no"}, bench="sums", step=0, problem="held-9"
        ),
        {"base score": ("sums",)},
        set(),
        ("sums: 0.4 in both, by different answers",),
    ),
}
"""What is done to the run of gspo with seed 0, and which checks fail.

Then the parts that these checks name, further checks that fail, and the message.
"""


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_named_and_withholds_the_verdict(lab: Lab, what: str) -> None:
    tamper, named, also, said = TAMPERINGS[what]
    tamper(lab)
    found = lab.certificate()
    assert odd_ones(found) == {(name, 0) for name in (*named, *also)}
    assert not found.ok
    assert found.headline.startswith("toy: NOT matched")
    verdict = lab.verdict()
    assert_fields(verdict, word="no verdict", better=None)
    for name, parts in named.items():
        assert_fields(of(found, name), state="differs undeclared", parts=parts)
        reason = f"undeclared difference in {name}: {', '.join(parts)} (seed 0)"
        assert reason in found.reasons["gspo"]
        assert reason in verdict["reason"]
    text = " ".join(of(found, name).detail for name in named)
    assert [words for words in said if words not in text] == []


def test_the_same_change_on_both_sides_of_a_pair_is_no_difference(lab: Lab) -> None:
    for arm in ("grpo", "gspo"):
        packages = {"torch": "2.13.1", "numpy": "2.4.6"}
        lab.set_facts(f"{arm}/s1", packages=packages, device="another CPU")
    found = lab.certificate()
    assert found.ok
    told = [
        line.split()[0] for line in found.lines() if "2 values, each equal in its pairs" in line
    ]
    assert told == ["packages", "device"]


def test_a_declaration_that_was_edited_and_locked_again_does_not_fit_the_runs(lab: Lab) -> None:
    def edit(study: JsonObject) -> None:
        study["arms"]["gspo"]["declared"].append("update.learning_rate")
        study["digest"] = digest({key: study[key] for key in LOCKED if key in study})

    lab.edit_json("study.json", edit)
    found = lab.certificate()
    assert found.lock.state == "equal"
    assert odd_ones(found) == {
        (name, seed) for name in ("declaration", "identity") for seed in range(3)
    }


def test_recorded_edits_of_the_study_are_named(lab: Lab) -> None:
    edits = [{"at": "2026-01-02", "what": "seeds added: 2"}]
    lab.edit_json("study.json", lambda study: study.update(edits=edits))
    found = lab.certificate()
    assert_fields(
        found.lock,
        state="differs as declared",
        detail="changed after the first step: 2026-01-02 seeds added: 2",
    )
    assert found.ok


def _resumed(**changes: Any) -> Callable[[Lines], Lines]:
    """A worker stopped after step 1, another one went on and recorded the rest."""

    def edit(lines: Lines) -> Lines:
        at = next(
            i for i, line in enumerate(lines) if line["kind"] == "update" and line["step"] == 2
        )
        facts = {**FACTS, "weights": "dd" * 32, **changes}
        return [*lines[:at], {**lines[0], "step": 2, "facts": facts}, *lines[at:]]

    return edit


def test_a_resumed_run_is_matched_if_its_workers_were_alike(lab: Lab) -> None:
    lab.edit_journal("gspo/s0", _resumed())
    found = lab.certificate()
    assert found.ok
    assert of(found, "restarts").detail == "workers beside the first: 1, all alike"
    assert of(found, "weights").detail == "aaaaaaaaaaaa"


def test_a_package_that_changed_between_start_and_resume_is_named(lab: Lab) -> None:
    lab.edit_journal("gspo/s0", _resumed(packages={"torch": "2.14.0", "numpy": "2.4.6"}))
    found = lab.certificate()
    assert odd_ones(found) == {("restarts", 0)}
    assert of(found, "restarts").parts == ("gspo: packages.torch",)
    assert (
        "toy/gspo/s0 went on at step 2 with packages.torch = 2.14.0, before 2.13.0"
        in of(found, "restarts").detail
    )
    assert lab.verdict()["word"] == "no verdict"


def test_what_was_not_recorded_is_said_and_never_called_equal(lab: Lab) -> None:
    def forget(lines: Lines) -> Lines:
        for line in lines:
            for name in (
                "facts",
                "prompt_digest",
                "rollout_digest",
                "log_ratio_max_abs",
                "grader",
                *SIGNED,
            ):
                line.pop(name, None)
        return [line for line in lines if line.get("bench") != "sums"]

    lab.edit_json("gspo/s0/run.json", lambda run: run.pop("declaration"))
    lab.edit_journal("gspo/s0", forget)
    found = lab.certificate()
    unknown = {check.name for check in found.pairs[0].checks if check.state == "not recorded"}
    same = {
        "settings",
        "declaration",
        "benchmark protocol",
        "other facts",
        "first log-probs",
        "prompts and updates",
    }
    assert unknown == set(CHECKS) - same | {"other facts"}
    assert of(found, "weights").detail == "nothing recorded by gspo"
    assert found.ok
    assert "not recorded everywhere: code, packages" in found.headline
    assert found.headline.startswith("toy: not proven to be matched (")
    assert found.unproven == ("weights", "prompts", "first rollout")
    with source(lab.runs / "lab.db") as studied:
        assert decision(studied).verdicts["gspo"].unproven == found.unproven


def test_runs_that_have_not_begun_make_no_pair(lab: Lab) -> None:
    (lab.home / "gspo" / "s2" / "journal.jsonl").unlink()
    lab.edit_journal(
        "gspo/s1",
        lambda lines: [
            line
            for line in lines
            if (line["step"] < 2 and line["kind"] != "status") or line is lines[0]
        ],
    )
    found = lab.certificate()
    assert [pair.seed for pair in found.pairs] == [0, 1]
    assert found.ok
    assert of(found, "prompts", 1).detail == "the same prompts in the same order over 2 steps"
    assert of(found, "benchmark items", 1).detail == "1 evaluations, 20 answers, item by item"


def test_a_declared_model_excuses_what_follows_from_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo='model = "tiny-qwen3-moe"')
    lab.set_facts(
        "gspo/s0", weights="ee" * 32, tokenizer="ee" * 32, chat_template="ee" * 32, parameters=7
    )
    lab.set_of(
        "gspo/s0",
        "step",
        {"rollout_digest": "o", "logprob_digest": "o", "reward_std": 0.75},
        step=0,
    )
    lab.set_of("gspo/s0", "answer", {"correct": 1}, bench="sums", step=0)
    found = lab.certificate()
    stated = {check.name for check in found.pairs[0].checks if check.state == "differs as declared"}
    assert stated == {
        *("settings", "weights", "tokenizer", "chat template", "other facts"),
        *("first rollout", "first log-probs", "first rewards", "base score"),
    }
    assert of(found, "weights").detail.endswith("(declared: model)")
    assert found.ok
    lab.set_facts("gspo/s0", device="a GPU")
    assert odd_ones(lab.certificate()) == {("device", 0)}


@pytest.mark.parametrize(
    ("how", "excuse"),
    [
        ({"coupled": "false"}, "rollout.coupled = false"),
        ({"gspo": "rollout = { temperature = 0.5 }"}, "rollout.temperature"),
    ],
)
def test_declared_sampling_excuses_the_first_rollout_alone(
    tmp_path: Path, how: JsonObject, excuse: str
) -> None:
    lab = Lab(tmp_path, **how)
    lab.set_of("gspo/s0", "step", {"rollout_digest": "o", "logprob_digest": "o"}, step=0)
    found = lab.certificate()
    assert (
        of(found, "first rollout").state
        == of(found, "first log-probs").state
        == "differs as declared"
    )
    assert of(found, "first rollout").detail.endswith(f"(declared: {excuse})")
    assert of(found, "first rollout", 1).state == "equal"
    lab.set_of("gspo/s0", "answer", {"correct": 1}, bench="sums", step=0)
    assert odd_ones(lab.certificate()) == {("base score", 0)}


def test_an_engine_of_two_processes_excuses_the_log_probs_of_equal_rollouts_alone(
    tmp_path: Path,
) -> None:
    """The same tokens in batches of another shape have other last bits of log-probs."""
    engine = 'engine = { name = "trl", options = { processes = 2 } }'
    lab = Lab(tmp_path, gspo=engine, top="compares_engines = true")
    lab.set_of("gspo/s0", "step", {"logprob_digest": "o"}, step=0)
    check = of(lab.certificate(), "first log-probs")
    assert check.state == "differs as declared"
    assert "declared: engine" in check.detail
    lab.set_of("gspo/s0", "step", {"rollout_digest": "o"}, step=0)
    assert {"first rollout", "first log-probs"} <= {name for name, _ in odd_ones(lab.certificate())}
    (tmp_path / "plain").mkdir()
    plain = Lab(tmp_path / "plain")
    plain.set_of("gspo/s0", "step", {"logprob_digest": "o"}, step=0)
    assert odd_ones(plain.certificate()) == {("first log-probs", 0)}


def test_staleness_is_declared_and_excuses_no_other_first_rollout(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo="rollout = { staleness = 2 }")
    found = lab.certificate()
    assert (of(found, "settings").state, of(found, "first rollout").state) == (
        "differs as declared",
        "equal",
    )
    assert "rollout.staleness" in of(found, "settings").detail
    lab.set_of("gspo/s0", "step", {"rollout_digest": "o"}, step=0)
    assert odd_ones(lab.certificate()) == {("first rollout", 0)}


def in_pieces(run: Run) -> list[Record]:
    """gspo has two responses a group and two mini-batches.

    No group is complete in step 0, one in step 1, then 7 and 4.
    """
    if run.arm == "grpo":
        return history(run)
    asked = [name for step in range(4) for name in ids(run.seed, step)]
    out: list[Record] = [
        one for one in history(run) if not isinstance(one, StepRecord | UpdateRecord | AnswerRecord)
    ]
    done = trained = 0
    for step, groups in enumerate((0, 1, 7, 4)):
        for minibatch in range(min(2, groups)):
            rate = 1e-4 * min(1.0, (done + 1) / 8)
            out.append(
                UpdateRecord(step=step, minibatch=minibatch, learning_rate=rate, response_tokens=16)
            )
            done += 1
        trained += 8 * groups
        plain = next(
            one for one in history(run) if isinstance(one, StepRecord) and one.step == step
        )
        measured = {"reward_mean": 0.5, "response_tokens_mean": 4.0} if groups else {}
        unknown = (
            "reward_mean",
            "reward_std",
            "zero_variance_groups",
            "grader_errors",
            "response_tokens_mean",
        )
        nothing = dict.fromkeys(unknown)
        counts = {"responses": 2 * groups, "tokens_trained_total": trained, "updates_total": done}
        pieces: JsonObject = {
            **nothing,
            **measured,
            **counts,
            "rollout_digest": f"pieces {run.seed} {step}",
        }
        out.append(replace(plain, **pieces))
        for problem in asked[sum((0, 1, 7, 4)[:step]) :][:groups]:
            out += [
                answer(step, "rollout", problem, sample, f"{problem} {sample}", 1 - sample)
                for sample in (0, 1)
            ]
    return out + [
        one for one in history(run) if isinstance(one, AnswerRecord) and one.bench == "sums"
    ]


def test_steps_of_responses_in_pieces_agree_with_themselves(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo="rollout = { tokens_per_step = 3 }", records=in_pieces)
    found = lab.certificate()
    assert [of(found, name).state for name in ("plan", "prompts")] == ["equal", "equal"]
    assert of(found, "first rollout").state == "differs as declared"
    assert (of(found, "first rewards").state, odd_ones(found)) == ("not recorded", set())


def dropping(run: Run) -> list[Record]:
    """gspo has two responses a group.

    Of four groups a step one is dropped, then another is sampled in its place.
    """
    if run.arm == "grpo":
        return history(run)
    out: list[Record] = []
    for one in history(run):
        if isinstance(one, StepRecord):
            one = replace(
                one,
                prompts=5,
                prompts_total=5 * (one.step + 1),
                dropped_groups=1,
                zero_variance_groups=0.2,
                reward_mean=0.4,
                tokens_sampled_total=40 * (one.step + 1),
                rollout_digest=f"more {run.seed} {one.step}",
            )
        out.append(one)
    return out


def test_steps_that_drop_groups_agree_with_themselves_and_cost_more(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo="rollout = { dynamic_sampling = 2 }", records=dropping)
    found = lab.certificate()
    assert [of(found, name).state for name in ("plan", "prompts")] == ["equal", "equal"]
    names = ("first rollout", "first rewards", "prompts and updates")
    assert {of(found, name).state for name in names} == {"differs as declared"}
    assert odd_ones(found) == set()


def test_arms_that_both_drop_groups_ask_as_many_others_as_they_need(tmp_path: Path) -> None:
    both = "rollout = { dynamic_sampling = 2 }"
    (tmp_path / "neither").mkdir()
    assert (
        of(Lab(tmp_path / "neither", records=dropping).certificate(), "prompts and updates").state
        == "differs undeclared"
    )
    lab = Lab(tmp_path, grpo=both, gspo=both, records=dropping)
    found = of(lab.certificate(), "prompts and updates")
    assert_fields(
        found,
        state="differs as declared",
        parts=("prompts_total",),
        detail="prompts_total: 16 in grpo, 20 in gspo (declared: rollout.dynamic_sampling)",
    )


def test_what_trains_of_the_same_first_rollout_is_declared_and_what_was_sampled_is_not(
    tmp_path: Path,
) -> None:
    """Step 0 is sampled alike under three treatments of its answers.

    Groups are dropped without replacement, length lowers rewards, and the loss leaves out truncated
    answers.
    """
    keys = {
        "dropping": "rollout = { dynamic_sampling = 1 }",
        "length": "rollout = { overlong_buffer = 2 }",
        "masked": 'truncated = "mask"',
    }
    for name, key in keys.items():
        (tmp_path / name).mkdir()
        lab = Lab(tmp_path / name, gspo=key)
        trained = {"flops_total": 1.5e6} | (
            {"response_tokens_mean": 5.0} if name == "dropping" else {}
        )
        lab.set_of("gspo/s0", "step", trained, step=0)
        found = lab.certificate()
        assert of(found, "first rollout").state == "equal"
        assert of(found, "first counts").state == "differs as declared"
        lab.set_of("gspo/s0", "step", {"tokens_sampled_total": 31}, step=0)  # of the same 32
        assert of(lab.certificate(), "first counts").state == "differs undeclared"


def test_the_samplers_log_probs_as_old_excuse_ratios_on_first_minibatches(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo='update = { old_logprobs = "sampler" }')
    lab.set_of("gspo/s0", "update", {"log_ratio_max_abs": 1e-6}, minibatch=0)
    found = lab.certificate()
    assert of(found, "first mini-batches").state == "differs as declared"
    lab.set_of("grpo/s0", "update", {"log_ratio_max_abs": 1e-6}, minibatch=0)
    assert odd_ones(lab.certificate()) == {("first mini-batches", 0)}


def test_a_loss_that_clips_by_covariance_may_clip_before_any_update(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo='policy_loss = "clip-cov"')
    lab.set_of("gspo/s0", "update", {"clip_fraction_tokens": 0.25}, minibatch=0)
    assert of(lab.certificate(), "first mini-batches").state == "equal"
    lab.set_of("gspo/s0", "update", {"log_ratio_max_abs": 1e-6}, minibatch=0)
    assert of(lab.certificate(), "first mini-batches").state == "differs undeclared"


def unclipped(run: Run) -> list[Record]:
    """The arm `gspo` with a loss that clips nothing."""
    bare: JsonObject = {"clipped_tokens": None, "clip_fraction_tokens": None}
    without = run.arm == "gspo"
    return [
        replace(one, **bare) if without and isinstance(one, UpdateRecord) else one
        for one in history(run)
    ]


def test_a_loss_without_a_clip_is_held_to_its_ratios_on_first_minibatches(tmp_path: Path) -> None:
    """Two arms of four steps have eight first mini-batches.

    The four of the clipping arm count clips.
    """
    lab = Lab(tmp_path, gspo='policy_loss = "sapo"', records=unclipped)
    found = of(lab.certificate(), "first mini-batches")
    assert_fields(
        found, state="equal", detail="ratio 1 in all 8 of them, clip 0 in the 4 that count clips"
    )
    lab.set_of("gspo/s0", "update", {"log_ratio_max_abs": 1e-7}, step=2, minibatch=0)
    lab.set_of("gspo/s1", "update", {"log_ratio_max_abs": None})
    lab.set_of("grpo/s2", "update", {"clip_fraction_tokens": 0.5}, step=1, minibatch=0)
    moved, silent, clipped = [
        of(lab.certificate(), "first mini-batches", seed) for seed in range(3)
    ]
    assert_fields(
        moved,
        state="differs undeclared",
        parts=("gspo, step 2",),
        detail="toy/gspo/s0 at step 2: log_ratio_max_abs 1e-07",
    )
    assert silent.state == "not recorded"
    assert_fields(clipped, state="differs undeclared", parts=("grpo, step 1",))


def test_declared_prompts_per_step_excuse_another_stream(tmp_path: Path) -> None:
    lab = Lab(tmp_path, gspo="rollout = { prompts_per_step = 6 }")
    lab.edit_journal("gspo/s0", _swap_prompts)
    found = of(lab.certificate(), "prompts")
    assert_fields(found, state="differs as declared", parts=("step 2",))


def test_a_swept_warm_start_excuses_other_weights(tmp_path: Path) -> None:
    lab = Lab(tmp_path, study="[sweep]\nwarm_start.learning_rate = [1e-3, 2e-3]")
    for arm in ("grpo@0.002", "gspo@0.002"):
        for seed in range(3):
            lab.set_facts(f"{arm}/s{seed}", weights="ee" * 32)
    found = lab.certificate()
    assert len(found.pairs) == 18
    states = {
        pair.arms: check.state
        for pair in found.pairs
        for check in pair.checks
        if check.name == "weights"
    }
    assert states["grpo@0.001", "gspo@0.001"] == states["grpo@0.002", "gspo@0.002"] == "equal"
    assert states["grpo@0.001", "grpo@0.002"] == "differs as declared"
    assert found.differences_from("grpo@0.001") == {}


def test_every_two_arms_are_held_against_each_other(tmp_path: Path) -> None:
    lab = Lab(tmp_path, study='[arm.third]\nobjective = "gspo"\nclip_high = 1e-3')
    assert len(lab.certificate().pairs) == 9
    lab.set_facts("third/s1", threads=4)
    found = lab.certificate()
    assert {
        pair.arms
        for pair in found.pairs
        for check in pair.checks
        if check.state == "differs undeclared"
    } == {arms for arms in {pair.arms for pair in found.pairs} if "third" in arms}
    assert len({pair.arms for pair in found.pairs}) == 3
    reason = ("undeclared difference in numerics: threads (seed 1)",)
    assert_fields(
        found,
        # the verdict on gspo stands
        baseline="grpo",
        reasons={"third": reason},
    )
    assert found.differences_from("third") == {"grpo": reason, "gspo": reason}


def test_an_accepted_mismatch_lets_the_verdict_be_said_with_its_reason(lab: Lab) -> None:
    lab.set_facts("gspo/s0", threads=2)
    assert not lab.certificate().ok
    lab.accept("same machine, two threads")
    (kept,) = json_of(lab.home / "accepted.json")
    assert_fields(
        kept,
        reason="same machine, two threads",
        differences=["grpo / gspo, seed 0: numerics: threads"],
    )
    found = lab.certificate()
    assert_fields(
        found, ok=True, reasons={}, undeclared=("grpo / gspo, seed 0: numerics: threads",)
    )
    assert found.headline.startswith("toy: matched, with accepted mismatches")
    assert "same machine, two threads" in found.lines()[-1]
    assert lab.verdict()["word"] == "better by more than the margin"
    # What comes later was not accepted.
    lab.set_facts("gspo/s0", device="a GPU")
    found = lab.certificate()
    assert found.open == ("grpo / gspo, seed 0: device: device",)
    assert lab.verdict()["word"] == "no verdict"
    assert lab.accept("and a GPU").ok
    assert [one.reason for one in lab.certificate().acceptances] == [
        "same machine, two threads",
        "and a GPU",
    ]


def test_an_acceptance_needs_a_mismatch_and_a_reason(lab: Lab) -> None:
    with lab_error("toy has no undeclared difference"):
        lab.accept("just in case")
    lab.set_facts("gspo/s0", threads=2)
    with lab_error("give the reason in words"):
        lab.accept("  ")
    assert not (lab.home / "accepted.json").exists()
    (lab.home / "accepted.json").write_text('{"reason": 1}')
    with lab_error(r"accepted\.json cannot be read"):
        lab.certificate()


def test_one_line_a_check_where_all_pairs_agree(lab: Lab) -> None:
    assert len(lab.certificate().lines()) == 1 + 30
    data = json.loads(json.dumps(lab.certificate().to_json()))
    assert (data["ok"], data["baseline"], len(data["pairs"])) == (True, "grpo", 3)
    assert [check["name"] for check in data["pairs"][2]["checks"]] == CHECKS
    lab.set_facts("gspo/s2", threads=2)
    text = lab.certificate().lines()
    assert (
        "  numerics            DIFFERS UNDECLARED  threads: 1 in grpo, 2 in gspo  [grpo / gspo,"
        " seed 2]" in text
    )
    assert len(text) == 1 + 30 + 1


def test_many_different_details_are_counted_and_not_all_printed() -> None:
    rows = grouped(
        [(None, Check("settings", Match.DECLARED, f"by {place}")) for place in range(10)]
    )
    assert len(rows) == 7
    assert rows[-1][1] == "and 4 more that read differently; the JSON has them all"


def test_engines_that_a_study_compares_may_have_packages_definitions_and_flops_of_their_own(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, gspo='engine = "trl"', top="compares_engines = true")
    assert of(lab.certificate(), "settings").state == "differs as declared"
    lab.set_facts(
        "gspo/s0",
        packages={"torch": "2.13.0", "numpy": "2.4.6", "trl": "1.16.0"},
        definitions={"a": "b"},
    )
    found = lab.certificate()
    assert of(found, "packages").state == of(found, "other facts").state == "differs as declared"
    assert "trl: unset in grpo, 1.16.0 in gspo (declared: engine)" in of(found, "packages").detail
    assert found.ok
    lab.set_of("gspo/s0", "step", {"flops_total": 1.5e6}, step=0)  # of 1e6
    found = lab.certificate()
    flops = of(found, "first counts")
    assert_fields(
        flops,
        state="differs as declared",
        parts=("flops_total",),
        detail="flops_total at step 0: 1000000 in grpo, 1500000 in gspo (declared: engine)",
    )
    assert of(found, "first counts", 1).state == "equal"
    assert lab.verdict()["word"] == "better by more than the margin"
    lab.set_facts("gspo/s0", weights="cc" * 32)
    lab.set_of("gspo/s0", "step", {"tokens_sampled_total": 31}, step=0)  # of the same 32
    found = lab.certificate()
    assert of(found, "weights").state == of(found, "first counts").state == "differs undeclared"


def test_in_pieces_the_groups_that_are_complete_decide_how_many_updates_there_are(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, coupled="true\ntokens_per_step = 4")
    lab.set_of("gspo/s0", "step", {"updates_total": 7}, step=3)  # of 8
    found = of(lab.certificate(), "prompts and updates")
    assert found.state == "equal"
    assert found.detail.startswith(
        "prompts_total 16; not compared, gspo / grpo: updates_total 0.875,"
        " tokens_sampled_total 1.000"
    )
    lab.set_of("gspo/s0", "step", {"prompts_total": 15}, step=3)
    assert of(lab.certificate(), "prompts and updates").state == "differs undeclared"


def test_longer_answers_are_told_and_fewer_updates_are_no_equal_compute(lab: Lab) -> None:
    alike = (
        "prompts_total 16, updates_total 8; not compared, gspo / grpo: tokens_sampled_total 1.000, "
    )
    assert of(lab.certificate(), "prompts and updates").detail.startswith(alike)
    lab.set_of("gspo/s0", "step", {"tokens_sampled_total": 144}, step=3)  # of 128
    found = of(lab.certificate(), "prompts and updates")
    assert found.state == "equal"
    assert (
        "not compared, gspo / grpo: tokens_sampled_total 1.125, tokens_trained_total 1.000,"
        " flops_total 1.000" in found.detail
    )
    lab.set_of("gspo/s0", "step", {"updates_total": 7}, step=3)
    found = of(lab.certificate(), "prompts and updates")
    assert_fields(found, state="differs undeclared", detail="updates_total: 8 in grpo, 7 in gspo")


@pytest.mark.parametrize("origin", [3, {"program": 3}, {"source": "logs"}])
def test_an_origin_that_cannot_be_read_is_one_line(lab: Lab, origin: object) -> None:
    """From every command that would name it."""
    lab.set_facts("grpo/s0", **FACTS, origin=origin)
    for command in (
        ("show", "toy"),
        ("certify", "toy"),
        ("report", "toy", "--output-dir", str(lab.folder)),
    ):
        said = gspo_lab(*command, "--runs", str(lab.runs))
        assert said.code == 2, command
        assert "toy/grpo/s0: its journal names an origin that cannot be read" in said.err


def test_an_edited_declaration_does_not_fit_its_digest(lab: Lab) -> None:
    lab.edit_json("study.json", lambda study: study["verdict"].update(margin=0.5))
    found = lab.certificate()
    assert_fields(found.lock, state="differs undeclared", parts=("study.json",))
    assert found.lock.detail.startswith("study.json was edited after it was locked")
    assert found.reasons["gspo"] == (
        "undeclared difference in lock: study.json",
        "undeclared difference in identity: grpo: declaration, gspo: declaration (seeds 0 to 2)",
    )
    assert lab.verdict()["word"] == "no verdict"


def test_an_undeclared_model_excuses_nothing(lab: Lab) -> None:
    lab.edit_json("gspo/s0/run.json", lambda run: run["settings"].update(model="tiny-olmoe"))
    lab.set_facts("gspo/s0", weights="ee" * 32)
    assert odd_ones(lab.certificate()) == {
        ("settings", 0),
        ("declaration", 0),
        ("weights", 0),
        ("identity", 0),
    }


def test_of_one_engine_other_flops_are_a_mismatch(lab: Lab) -> None:
    lab.set_of("gspo/s0", "step", {"flops_total": 1.5e6}, step=0)
    assert odd_ones(lab.certificate()) == {("first counts", 0)}
