"""Where two runs part, and what the two commands print."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from calling import gspo_lab, lab_error
from laboratory import recorded_instead
from matched_lab import Lab, Lines, SealedLab

from gspo_lab.analysis.matching import Difference, first_difference
from gspo_lab.recording.store import Evidence, ingest, rebuild

TWIN = "toy/grpo/s0"
OTHER = "copy/grpo/s0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study `toy`, and a copy of it with nothing changed."""
    lab = Lab(tmp_path_factory.mktemp("whole"))
    shutil.copytree(lab.home, lab.runs / "copy")
    ingest(lab.runs)
    return lab.folder


@pytest.fixture
def lab(whole: Path, tmp_path: Path) -> Lab:
    return Lab.copied(whole, tmp_path)


def parting(lab: Lab, one: str = TWIN, other: str = OTHER) -> Difference | None:
    with Evidence.open(lab.runs / "lab.db") as evidence:
        return first_difference(evidence, one, other)


def test_twins_agree(lab: Lab) -> None:
    assert parting(lab) is None


def test_the_guide_s_lines_of_python_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    guide = (Path(__file__).parents[3] / "docs/explanation/matching.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    monkeypatch.chdir(lab.runs.parent)
    exec(block.replace("my_study", "toy"))
    out = capsys.readouterr().out
    assert out.startswith("True {}\n")
    assert "where='objective.clip_high'" in out


def test_declared_settings_come_first_then_what_they_did(lab: Lab) -> None:
    found = parting(lab, TWIN, "toy/gspo/s0")
    assert_fields(
        found, kind="setting", where="objective.clip_high", value_a="0.27", value_b="0.0004"
    )
    assert found.declared
    kinds = [(one.kind, one.where) for one in found.later[3:]]
    assert kinds == [
        # The first update that can differ is the second one of step 0; everything before it is
        # equal.
        ("update", "step 0, mini-batch 1, loss"),
        ("rollout", "step 1, response 0 to problem 'train-0-1-0'"),
        ("log-probs", "step 1, logprob_digest"),
        ("answer", "sums after 2 steps, held-8 #0"),
    ]
    assert_fields(found.later[3], value_a="0.5", value_b="1")
    assert_fields(
        found.later[4],
        value_a="train-0-1-0 said g›rpo 0",
        value_b="train-0-1-0 said g›spo 0",
        context=("asked: train-0-1-0?",),
    )


def test_an_undeclared_setting_comes_before_declared_ones(lab: Lab) -> None:
    lab.edit_json(
        "gspo/s0/run.json", lambda run: run["settings"]["update"].update(weight_decay=0.1)
    )
    found = parting(lab, TWIN, "toy/gspo/s0")
    assert_fields(found, where="update.weight_decay", value_a="0", value_b="0.1", declared=False)


def test_another_seed_is_the_first_difference(lab: Lab) -> None:
    found = parting(lab, TWIN, "toy/grpo/s1")
    assert_fields(found, kind="setting", where="seed", value_a="0", value_b="1")
    prompt = next(one for one in found.later if one.kind == "prompt")
    assert_fields(prompt, where="step 0", value_a="train-0-0-0", value_b="train-1-0-0")


def test_a_package_comes_before_the_weights(lab: Lab) -> None:
    lab.set_facts("grpo/s0", weights="ee" * 32, packages={"torch": "2.13.1", "numpy": "2.4.6"})
    found = parting(lab)
    assert_fields(found, kind="package", where="packages.torch", value_a="2.13.1", value_b="2.13.0")
    assert [(one.kind, one.value_a, one.value_b) for one in found.later] == [
        ("weights", "e" * 12, "a" * 12)
    ]


def test_a_prompt_is_named_if_it_was_kept(lab: Lab) -> None:
    def swap(lines: Lines) -> Lines:
        for line in lines:
            if line["kind"] == "step" and line["step"] >= 2:
                line["prompt_digest"] = "other " + line["prompt_digest"]
        kept = [line for line in lines if line.get("bench") == "rollout" and line["step"] == 2]
        place = lines.index(kept[0])
        rest = [line for line in lines if line not in kept]
        return [*rest[:place], *kept[2:4], *kept[:2], *kept[4:], *rest[place:]]

    lab.edit_journal("grpo/s0", swap)
    found = parting(lab)
    assert_fields(
        found, kind="prompt", where="step 2", value_a="train-0-2-1", value_b="train-0-2-0"
    )
    found = parting_without_responses(lab)
    assert_fields(found, kind="prompt", where="step 2, digest")
    assert "rollouts = 1.0 keeps all" in found.context[0]


def parting_without_responses(lab: Lab) -> Any:
    lab.edit_journal(
        "grpo/s0", lambda lines: [line for line in lines if line.get("bench") != "rollout"]
    )
    return parting(lab)


def test_a_response_is_shown_around_the_place_where_it_parts(lab: Lab) -> None:
    long = "a" * 60
    change = {"text": f"{long}x{long}"}
    lab.set_of("grpo/s0", "answer", change, bench="rollout", problem="train-0-3-2", sample=1)
    rebuild(lab.runs)
    lab.set_of("grpo/s0", "step", {"rollout_digest": "other"}, step=3)
    found = parting(lab)
    assert_fields(
        found,
        kind="rollout",
        where="step 3, response 1 to problem 'train-0-3-2'",
        value_a="›" + "a" * 40 + "…",
        value_b="›train-0-3-2 said grpo 1",
    )
    theirs = lab.runs / "copy" / "grpo" / "s0" / "journal.jsonl"
    recorded_instead(theirs, "train-0-3-2 said grpo 1", f"{long}y")
    rebuild(lab.runs)
    assert_fields(parting(lab), value_a=f"…{'a' * 40}›x{'a' * 39}…", value_b=f"…{'a' * 40}›y")
    found = parting_without_responses(lab)
    assert_fields(
        found,
        where="step 3, token ids",
        value_a="other",
        context=("no response of this step was kept; what a step does not train on never is",),
    )


def test_the_first_update_that_differs_is_named_with_its_column(lab: Lab) -> None:
    lab.set_of("grpo/s0", "update", {"clip_fraction_tokens": 0.5, "loss": 9.0}, step=2, minibatch=1)
    lab.set_of("grpo/s0", "update", {"clip_fraction_tokens": 0.75}, step=3, minibatch=0)
    found = parting(lab)
    assert_fields(
        found,
        kind="update",
        where="step 2, mini-batch 1, loss",
        value_a="9",
        value_b="0.5",
        context=("and 1 more column: clip_fraction_tokens",),
        later=(),
    )


def test_rounding_is_a_difference_only_where_the_settings_are_equal(lab: Lab) -> None:
    # The two ratios are equal in the first mini-batch; other instructions sum the same terms in
    # another order.
    lab.set_of("grpo/s0", "update", {"learning_rate": 1.25e-5 * (1 + 2**-24)}, step=0, minibatch=0)
    same = parting(lab)
    apart = parting(lab, TWIN, "toy/gspo/s0")
    assert_fields(same, where="step 0, mini-batch 0, learning_rate", value_a="1.25000007e-05")
    assert "step 0, mini-batch 1, loss" in [later.where for later in apart.later]


def test_times_are_no_difference_and_neither_is_what_one_side_did_not_record(lab: Lab) -> None:
    lab.set_of("grpo/s0", "update", {"seconds": 9.0, "kl": 1.0}, step=2, minibatch=1)
    lab.edit_journal("grpo/s0", lambda lines: [line for line in lines if line["step"] < 3])
    assert parting(lab) is None


def test_unknown_runs_are_refused_with_the_nearest_name(lab: Lab) -> None:
    with lab_error(r"no run 'toy/grop/s0' \(did you mean 'toy/grpo/s0'\?\)"):
        parting(lab, "toy/grop/s0")
    with lab_error("no study 'other'"):
        parting(lab, "other/grpo/s0")
    (lab.home / "grpo" / "s0" / "journal.jsonl").unlink()
    rebuild(lab.runs)
    with lab_error("toy/grpo/s0 has not begun"):
        parting(lab)


def test_certify_prints_and_its_exit_code_tells(tmp_path: Path) -> None:
    lab = SealedLab(tmp_path)
    certify = ("certify", "toy", "--runs", lab.runs)
    said = gspo_lab(*certify)
    assert (said.code, said.out.splitlines()[0]) == (
        0,
        "toy: matched (30 checks, 3 comparisons of two runs)",
    )
    lab.set_facts("gspo/s1", threads=2)
    said = gspo_lab(*certify)
    assert said.code == 1
    assert "NOT matched (30 checks, 3 comparisons of two runs): numerics" in said.out
    said = gspo_lab(*certify, "--json")
    assert (said.code, said.json["open"]) == (1, ["grpo / gspo, seed 1: numerics: threads"])
    said = gspo_lab("certify", "toi", "--runs", lab.runs)
    assert_fields(said, code=2, out="")
    assert "no study 'toi' (did you mean 'toy'?)" in said.err


def test_why_prints_the_first_difference(lab: Lab) -> None:
    same, arms, listed, wrong = (
        gspo_lab("compare", TWIN, other, *more, "--runs", lab.runs)
        for other, *more in (
            (OTHER,),
            ("toy/gspo/s0",),
            ("toy/gspo/s0", "--json"),
            ("toy/gspo/s9",),
        )
    )
    assert_fields(same, code=0, out=f"{TWIN} and {OTHER} agree in everything that both recorded\n")
    assert arms.code == 0
    assert arms.out.splitlines()[1] == "  setting: objective.clip_high: 0.27 | 0.0004 (declared)"
    assert "  update: step 0, mini-batch 1, loss: 0.5 | 1" in arms.out.splitlines()
    assert (listed.code, listed.json["later"][3]["kind"]) == (0, "update")
    assert wrong.code == 2
    assert "no run 'toy/gspo/s9'" in wrong.err
