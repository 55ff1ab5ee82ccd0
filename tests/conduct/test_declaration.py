"""What may change once a study has begun, and what may not."""

import json
from pathlib import Path
from typing import Any

import pytest
from counting import Bench

from gspo_lab.conduct import study_lock
from gspo_lab.errors import LabError
from gspo_lab.report.sections.provenance import reproduce
from gspo_lab.study import Declaration, Study, digest
from gspo_lab.study.declaration import LOCKED, identity


def declare(study: Study, home: Path) -> dict[str, Any]:
    """What study.json holds after `study` was declared."""
    return study_lock.declare(study, home).to_json()


def lock_digest(content: dict[str, Any]) -> str:
    return digest({key: content[key] for key in LOCKED if key in content})


def begin(bench: Bench, *runs: str) -> dict[str, Any]:
    """Declare the study and let runs have recorded something."""
    content = declare(bench.study(), bench.home)
    leave_begun(bench, *runs)
    return content


def leave_begun(bench: Bench, *runs: str) -> None:
    for run in runs:
        (bench.home / run).mkdir(parents=True)
        (bench.home / run / "journal.jsonl").write_text('{"kind":"status","state":"started","step":0}\n')


def on_disk(bench: Bench) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bench.home / "study.json").read_text())
    return content


def test_the_declaration_holds_the_whole_study_and_its_digest(bench: Bench) -> None:
    content = begin(bench)
    assert on_disk(bench) == content
    assert content.items() >= bench.study().locked().items()
    assert content["digest"] == digest(bench.study().locked())
    assert content["reference_bands"] == {"grpo": [0.2, 0.27], "gspo": [3e-4, 4e-4]}
    assert content["edits"] == []


def test_before_the_first_record_everything_may_change(bench: Bench) -> None:
    begin(bench)
    bench.steps = 7
    assert declare(bench.study(), bench.home)["arms"]["a"]["settings"]["steps"] == 7
    assert on_disk(bench)["edits"] == []


def test_a_begun_study_refuses_other_settings_by_name(bench: Bench) -> None:
    before = begin(bench, "a/s0", "b/s0")
    bench.steps = 7
    bench.b = "clip_high = 0.001"
    with pytest.raises(LabError, match=r"steps, objective\.clip_high.*--name NEW.*--fresh") as refused:
        declare(bench.study(), bench.home)
    assert refused.value.details == ("steps: 4 -> 7", "objective.clip_high: 0.0004 -> 0.001 (arm b)")
    assert on_disk(bench) == before


def test_an_arm_that_was_run_and_is_no_longer_declared_is_missed(bench: Bench) -> None:
    content = begin(bench, "a/s0", "b/s0")
    del content["arms"]["a"]
    (bench.home / "study.json").write_text(json.dumps(content))
    with pytest.raises(LabError, match=r"study\.json does not declare a, which has been run: restore it"):
        declare(bench.study(), bench.home)


def test_the_rule_of_the_verdict_is_as_fixed_as_the_settings(bench: Bench) -> None:
    begin(bench, "a/s0")
    with pytest.raises(LabError, match="verdict") as refused:
        declare(bench.study(overrides=["verdict.margin=0.5"]), bench.home)
    assert refused.value.details == ("verdict.margin: 0.02 -> 0.5",)


def test_the_names_of_a_contrast_may_change_and_are_noted(bench: Bench) -> None:
    contrast, names = "verdict.contrast={a = -1, b = 1}", ["the new rule", "the old rule"]
    bench.b = "clip_high = 0.001"
    before = declare(bench.study(overrides=[contrast]), bench.home)
    assert "names" not in before["verdict"], "studies that name nothing keep the digest of earlier versions"
    leave_begun(bench, "a/s0")
    content = declare(bench.study(overrides=[contrast, f"verdict.names={names}"]), bench.home)
    assert content["verdict"] == {**before["verdict"], "names": names}
    assert [edit["what"] for edit in content["edits"]] == ["verdict.names, was: unset"]
    assert content["digest"] == lock_digest(content) != before["digest"]
    first, second = (Declaration.parse(data, "here") for data in (before, content))
    assert identity(first) == identity(second), "it is the same study: what replicates one replicates the other"


def test_seeds_and_arms_may_be_added_and_are_noted(bench: Bench) -> None:
    before = begin(bench, "a/s0", "b/s0")
    bench.seeds = [1, 2]
    bench.b += '\n[arm.c]\nobjective = "gspo"\nclip_low = 0.01'
    content = declare(bench.study(), bench.home)
    assert content["seeds"] == [0, 1, 2], "a seed that this start leaves out stays declared"
    assert list(content["arms"]) == ["a", "b", "c"]
    assert [edit["what"] for edit in content["edits"]] == ["seeds added: 2", "arms added: c"]
    assert content["created"] == before["created"]
    assert content["digest"] == lock_digest(content) != before["digest"]
    assert content["reference_bands"] == before["reference_bands"]
    assert declare(bench.study(), bench.home) == content, "the same start again is no edit"


def test_an_arm_that_has_not_begun_may_change_and_is_noted(bench: Bench) -> None:
    begin(bench, "a/s0")
    bench.b = "clip_high = 0.001"
    content = declare(bench.study(), bench.home)
    assert content["arms"]["b"]["settings"]["objective"]["clip_high"] == 0.001
    assert [edit["what"] for edit in content["edits"]] == [
        "arm b, before its first step: objective.clip_high: 0.0004 -> 0.001"
    ]


def sweep(bench: Bench, doses: str) -> None:
    bench.b = f"[sweep]\nupdate.learning_rate = {doses}"


def test_doses_may_be_added_and_none_is_lost(bench: Bench) -> None:
    sweep(bench, "[1e-4, 1e-3]")
    begin(bench, "a@0.0001/s0")
    sweep(bench, "[3e-4, 1e-3]")
    content = declare(bench.study(), bench.home)
    assert content["sweep"] == {"key": "update.learning_rate", "doses": [1e-4, 3e-4, 1e-3]}
    assert sorted({arm["dose"] for arm in content["arms"].values()}) == [1e-4, 3e-4, 1e-3]
    assert [edit["what"] for edit in content["edits"]] == [
        "arms added: a@0.0003, b@0.0003",
        "doses of update.learning_rate added: 0.0003",
    ]
    assert content["digest"] == lock_digest(content)
    assert declare(bench.study(), bench.home) == content, "the same start again is no edit"


def test_another_sweep_or_none_is_another_study(bench: Bench) -> None:
    sweep(bench, "[1e-4, 1e-3]")
    begin(bench, "a@0.0001/s0")
    for b, told in (("", "unset"), ("[sweep]\nupdate.max_grad_norm = [0.5, 1.0]", "update.max_grad_norm")):
        bench.b = b
        with pytest.raises(LabError, match="sweep") as refused:
            declare(bench.study(), bench.home)
        assert refused.value.details == (f"sweep: update.learning_rate -> {told}",)


def test_a_waiver_given_later_is_kept_and_noted(bench: Bench) -> None:
    begin(bench, "a/s0")
    bench.b = "[waive]\nstd-one-arm = 'asked so'"
    content = declare(bench.study(), bench.home)
    assert content["waive"] == {"std-one-arm": "asked so"}
    assert [edit["what"] for edit in content["edits"]] == ["waived std-one-arm: asked so"]
    assert content["digest"] == lock_digest(content)
    bench.b = "[waive]\nstd-one-arm = 'for the paper'\ndual-clip-one-arm = 'too'"
    content = declare(bench.study(), bench.home)
    assert [edit["what"] for edit in content["edits"]][1:] == [
        "waived std-one-arm: for the paper; was: asked so",
        "waived dual-clip-one-arm: too",
    ]
    bench.b = ""
    assert declare(bench.study(), bench.home) == content, "the runs were begun under it"


def test_claims_changed_later_are_noted_once_and_do_not_count(bench: Bench) -> None:
    begin(bench, "a/s0")
    bench.b = '[[claim]]\nname = "C14-more-efficient"'
    content = declare(bench.study(), bench.home)
    assert "claims" not in content
    (edit,) = content["edits"]
    assert edit["what"].startswith("claims now C14-more-efficient (")
    assert declare(bench.study(), bench.home) == content, "the same start again is no edit"
    bench.b += '\n[[claim]]\nname = "C01-first-minibatch"'
    content = declare(bench.study(), bench.home)
    assert len(content["edits"]) == 2
    assert declare(bench.study(), bench.home) == content


def test_what_to_type_is_kept_for_each_start_that_let_the_study_grow(bench: Bench) -> None:
    home = bench.runs / "other"
    first = declare(bench.study(seeds=[0], steps=7, overrides=["update.epochs=2"], name="other"), home)
    file = "studies/count.toml"  # the fixture's path is that of this machine, and is not kept
    words = ["--set", "update.epochs=2", "--seeds", "1", "--steps", "7", "--name", "other"]
    assert first["commands"] == [[file, *words]]
    (home / "a/s0").mkdir(parents=True)
    (home / "a/s0/journal.jsonl").write_text('{"kind":"status","state":"started","step":0}\n')
    same = {"steps": 7, "overrides": ["update.epochs=2"], "name": "other"}
    assert declare(bench.study(seeds=[0], arms=["b"], **same), home) == first, "it declares nothing new"
    grown = declare(bench.study(seeds=[1, 4], arms=["b", "a"], **same), home)
    more = ["--set", "update.epochs=2", "--seeds", "1,4", "--steps", "7", "--arms", "b,a", "--name", "other"]
    assert grown["commands"] == [[file, *words], [file, *more]]
    assert grown["digest"] == lock_digest(grown)
    assert reproduce(Declaration.parse(grown, "here")) == [
        "gspo-lab run studies/count.toml --set update.epochs=2 --seeds 1 --steps 7 --name other",
        "gspo-lab run studies/count.toml --set update.epochs=2 --seeds 1,4 --steps 7 --arms b,a --name other",
        "gspo-lab certify other",
        "gspo-lab report other",
    ]
    unknown = {key: kept for key, kept in grown.items() if key != "commands"}
    assert reproduce(Declaration.parse(unknown, "here")) == ["gspo-lab certify other", "gspo-lab report other"]


def test_a_subset_of_the_arms_leaves_the_others_declared(bench: Bench) -> None:
    before = begin(bench, "a/s0", "b/s0")
    assert declare(bench.study(arms=["b"]), bench.home) == before


def test_fresh_moves_the_old_runs_away(bench: Bench) -> None:
    begin(bench, "a/s0", "b/s0")
    old = (bench.home / "a/s0/journal.jsonl").read_bytes()
    bench.seeds = [0]
    bench.steps = 5
    with pytest.raises(LabError, match="--fresh"):
        bench.conduct()
    found, _ = bench.conduct(fresh=True)
    assert found.exit_code == 0
    assert (bench.runs / "_archive/count-1/a/s0/journal.jsonl").read_bytes() == old
    assert bench.steps_of("a/s0") == [0, 1, 2, 3, 4]
    assert study_lock.archive(bench.home, bench.runs, "count") == bench.runs / "_archive/count-2"


def test_a_start_that_declares_nothing_new_leaves_the_file_of_an_earlier_version(bench: Bench) -> None:
    begin(bench, "a/s0", "b/s0")
    content = on_disk(bench)
    for arm in content["arms"].values():
        del arm["settings"]["update"]["skip_zero_advantage"]  # as if it was not known then
    text = json.dumps({**content, "digest": lock_digest(content)})
    (bench.home / "study.json").write_text(text)
    study_lock.declare(bench.study(), bench.home)
    assert (bench.home / "study.json").read_text() == text
    study_lock.declare(bench.study(seeds=[0, 1, 7]), bench.home)
    grown = on_disk(bench)
    assert [edit["what"] for edit in grown["edits"]] == ["seeds added: 7"]
    assert grown["arms"]["a"]["settings"]["update"]["skip_zero_advantage"] is True


def test_a_declaration_that_was_edited_by_hand_does_not_grow(bench: Bench) -> None:
    begin(bench, "a/s0", "b/s0")
    content = on_disk(bench)
    text = json.dumps({**content, "question": "another?"})
    (bench.home / "study.json").write_text(text)
    with pytest.raises(LabError, match="was edited after it was locked, and cannot grow"):
        study_lock.declare(bench.study(seeds=[0, 1, 7]), bench.home)
    assert (bench.home / "study.json").read_text() == text


def test_what_runs_have_begun_by_is_kept_when_the_study_grows(bench: Bench) -> None:
    first = begin(bench, "a/s0", "b/s0")
    bench.seeds = [0, 1, 2]
    grown = declare(bench.study(), bench.home)
    assert [lock_digest(one) for one in grown["superseded"]] == [first["digest"]]
    assert grown["superseded"][0]["verdict"] == first["verdict"]
    bench.seeds = [0, 1, 2, 3]
    assert [lock_digest(one) for one in declare(bench.study(), bench.home)["superseded"]] == [
        first["digest"],
        grown["digest"],
    ]
    assert study_lock.declare(bench.study(), bench.home).digest == on_disk(bench)["digest"]
