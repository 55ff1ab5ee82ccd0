"""`--set` reaches every setting; `--seeds`, `--steps` and `--arms` the whole study."""

import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from calling import lab_error
from case_tables import cases
from study_files import ARMS, SHARED, load, mistakes

from gspo_lab.common.keys import table_of
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study import Settings, Study, VerdictTable, flat, load_study
from gspo_lab.study.overrides import drop_options


def resolved(study: Study, arm: str = "grpo") -> JsonObject:
    """The settings by dotted key, the one benchmark's under `sums`.

    An engine without options is dumped as its name alone, an objective without some keys at their
    defaults.
    """
    settings = study.arms[arm].settings
    data = settings.model_dump(mode="json")
    tables = {"engine": dict(settings.engine), "objective": dict(settings.objective)}
    return flat(data | tables | {"bench": {"sums": data["bench"][0]}})


def other(key: str, annotation: Any, now: Any) -> str:
    """A valid value of the key, in TOML, that is not `now`."""
    parts = {annotation, *typing.get_args(annotation)}
    kinds = parts | {
        typing.get_args(part)[0] for part in parts if typing.get_origin(part) is Annotated
    }
    origins = {typing.get_origin(one) for one in kinds}
    if typing.get_origin(annotation) is Literal:
        return f'"{next(value for value in typing.get_args(annotation) if value != now)}"'
    if dict in origins:
        return "{ another = 1 }"
    if bool in kinds:
        return str(not now).lower()
    if list in origins:
        return '["stop", "here"]'
    if str in kinds:
        values = {
            "objective.policy_loss": '"cispo"',
            "objective.preset": '"gspo"',
            "upcycle.layers": '"1-2"',
        }
        return values.get(key, '"another"')
    if int in kinds:
        return str(2 * (now or 2))
    return "3.0" if now is None else str(0.5 * now or 0.25)


def every_key() -> JsonObject:
    """Every dotted key of a run that is no table, with its type.

    Those of benchmarks are under the test study's.
    """
    out: JsonObject = {}
    for name, entry in Settings.model_fields.items():
        table = table_of(
            typing.get_args(entry.annotation)[0] if name == "bench" else entry.annotation
        )
        prefix = "bench.sums" if name == "bench" else name
        fields = (
            {name: entry}
            if table is None
            else {f"{prefix}.{key}": one for key, one in table.model_fields.items()}
        )
        out |= {key: one.annotation for key, one in fields.items() if key != "bench.sums.task"}
    return out


def test_every_setting_can_be_overridden(tmp_path: Path) -> None:
    before = resolved(load(tmp_path))
    along = {  # a preset and a correction bring others along
        "objective.preset": {
            f"objective.{name}" for name in ("clip_low", "clip_high", "importance_sampling_level")
        },
        "objective.mismatch_correction": {"objective.mismatch_low", "objective.mismatch_high"},
        "bench.sums.decisive_samples": {"bench.sums.decisive_evaluations"},
    }
    alone = ARMS.replace('objective = "grpo"', "kl_coef = 1")
    along["objective.preset"].add("objective.kl_coef")  # what its arm states instead
    for key, annotation in every_key().items():
        wanted = other(key, annotation, before.get(key))
        study = load(
            tmp_path,
            SHARED + (alone if key == "objective.preset" else ARMS),
            overrides=[f"{key}={wanted}"],
        )
        after = resolved(study)
        found = key if key in after else f"{key}.another"
        assert after[found] != before.get(found), key
        assert {one for one in before if before[one] != after.get(one)} <= {
            key,
            *along.get(key, ()),
        }, key
        assert study.command[1:] == ("--set", f"{key}={wanted}")


def test_the_verdict_s_rule_can_be_overridden(tmp_path: Path) -> None:
    contrast = "verdict.contrast={grpo = -1.0, gspo = 1.0}"
    names = 'verdict.names=["new", "old"]'
    given = {
        "primary": "sums",
        "baseline": "gspo",
        "last": 2,
        "looks": [3],
        "question": "stability",
        "chosen": "pilots",
    }
    for key in VerdictTable.model_fields.keys() - {"contrast", "names", "order", "over"}:
        value = given.get(key, 0.25)
        assert (
            getattr(
                load(tmp_path, seeds=[0, 1, 2], overrides=[f"verdict.{key}={value}"]).verdict, key
            )
            == value
        )
    verdict = load(tmp_path, overrides=[contrast, names]).verdict
    assert (verdict.contrast, verdict.names) == ({"grpo": -1.0, "gspo": 1.0}, ["new", "old"])
    assert load(tmp_path, overrides=['verdict.order=["gspo"]']).verdict.order == ["gspo"]


def test_an_arm_s_own_key_wins_over_an_override_of_what_all_share(tmp_path: Path) -> None:
    """`--set` changes an entry of the file; later entries still win."""
    arms = ARMS + "clip_high = 0.5\n"
    study = load(tmp_path, SHARED + arms, overrides=["objective.clip_high=0.25"])
    assert study.arms["grpo"].settings.objective.clip_high == 0.25, "over its preset"
    assert study.arms["gspo"].settings.objective.clip_high == 0.5, "its own"
    study = load(tmp_path, SHARED + arms, overrides=["arm.gspo.clip_high=0.75"])
    assert study.arms["gspo"].settings.objective.clip_high == 0.75


def test_numbers_lists_and_bare_words(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        overrides=[
            "model=tiny-olmoe",
            "update.learning_rate=3e-4",
            'rollout.stop=["a", "\\n"]',
            "rollout.coupled=false",
            "question=A new one, with spaces?",
            "seeds=[7, 8]",
        ],
    )
    settings = study.arms["gspo"].settings
    assert (settings.model, settings.update.learning_rate) == ("tiny-olmoe", 3e-4)
    assert (settings.rollout.stop, settings.rollout.coupled) == (["a", "\n"], False)
    assert (study.question, study.seeds) == ("A new one, with spaces?", (7, 8))
    assert load(tmp_path, overrides=["steps = 5", "steps=6"]).arms["grpo"].settings.steps == 6, (
        "the last wins"
    )
    assert load(tmp_path, overrides=["steps=5"], steps=9).arms["grpo"].settings.steps == 9


def test_a_task_that_is_a_name_takes_options_too(tmp_path: Path) -> None:
    for overrides in (["task.digits=2"], ["task=addition", "task.digits=2"]):
        task = load(tmp_path, overrides=overrides).arms["grpo"].settings.task
        assert (task.name, task.options) == ("addition", {"digits": 2})
    assert (
        load(tmp_path, overrides=["bench.sums.task=guess"]).arms["grpo"].settings.bench[0].task
        is not None
    )
    bench = load(tmp_path, overrides=["bench.sums.task=guess", "bench.sums.task.digits=3"])
    assert bench.arms["grpo"].settings.bench[0].task.options == {"digits": 3}


def test_one_arm_alone_is_reached_by_its_name(tmp_path: Path) -> None:
    study = load(tmp_path, overrides=["arm.gspo.clip_low=1e-3", "arm.gspo.update.epochs=2"])
    assert study.arms["gspo"].settings.objective.clip_low == 1e-3
    assert [arm.settings.update.epochs for arm in study.arms.values()] == [1, 2]
    assert "update.epochs" in study.arms["gspo"].declared
    dotted = load(
        tmp_path,
        SHARED + ARMS.replace("arm.gspo", 'arm."gspo-1.5"'),
        overrides=['arm."gspo-1.5".kl_coef=0.1'],
    )
    assert dotted.arms["gspo-1.5"].settings.objective.kl_coef == 0.1


@pytest.mark.parametrize(
    ("override", "line"),
    cases(__file__, "refused"),
)
def test_an_override_that_cannot_be_is_told(tmp_path: Path, override: str, line: str) -> None:
    found = mistakes(tmp_path, overrides=[override])
    assert len(found) == 1, found
    assert line in found[0]


def test_arms_are_chosen_in_the_file_s_order(tmp_path: Path) -> None:
    text = SHARED + ARMS + "[arm.more]\nkl_coef = 0.1\n"
    assert list(load(tmp_path, text, arms=["more", "grpo"]).arms) == ["grpo", "more"]
    assert (
        load(tmp_path, text, arms=["gspo"], overrides=["verdict.baseline=grpo"]).verdict.baseline
        == "grpo"
    )
    (only,) = mistakes(tmp_path, text, arms=["grp", "grpo"])
    assert only == "--arms: no arm 'grp' (did you mean 'grpo'?); this study has grpo, gspo, more"
    assert mistakes(tmp_path, text, arms=[]) == ["--arms: names no arm"]


def test_the_command_says_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = load(tmp_path).path.relative_to(tmp_path)
    assert load_study(path).command == (path.as_posix(),), "a relative path stays as it was given"
    assert load_study(path.absolute()).command == (f"studies/{path.name}",), (
        "a whole one is this machine's alone"
    )
    assert load_study(path, seeds=3).command[1:] == ("--seeds", "3")
    assert load_study(path, seeds=[0, 1, 2]).command[1:] == ("--seeds", "0,1,2")
    assert load_study(path, seeds=[4, 1]).command[1:] == ("--seeds", "4,1")
    only_seven = load_study(path, seeds=[7])
    assert (only_seven.command[1:], only_seven.seeds) == (("--seed", "7"), (7,))
    study = load_study(
        path, overrides=["update.epochs=2", "steps=5"], steps=3, arms=["gspo", "grpo"], name="own"
    )
    said = "--set update.epochs=2 --set steps=5 --steps 3 --arms gspo,grpo --name own"
    assert " ".join(study.command[1:]) == said


@pytest.mark.parametrize(
    ("declared", "count", "expected"),
    cases(__file__, "counted_seeds"),
)
def test_a_count_takes_the_declared_seeds_and_then_follows_them(
    tmp_path: Path, declared: str, count: int, expected: list[int]
) -> None:
    path = load(tmp_path).path
    study = load_study(path, overrides=[f"seeds={declared}"], seeds=count)
    assert study.seeds == tuple(expected)


def test_a_count_passes_over_the_trials_seeds(tmp_path: Path) -> None:
    tune = "tune={seeds=[3,4], steps=2, values={update.learning_rate=[1e-4,2e-4]}}"
    study = load_study(load(tmp_path).path, overrides=["seeds=[1,2]", tune], seeds=4)
    assert study.seeds == (1, 2, 5, 6)


def test_a_study_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = load(tmp_path).path
    monkeypatch.chdir(tmp_path)
    assert load_study(Path(path.stem)).name == path.stem
    (tmp_path / "studies").mkdir()
    path.rename(tmp_path / "studies" / "moved.toml")
    assert load_study(Path("moved")).command == ("studies/moved.toml",)
    with lab_error("no study file moevd"):
        load_study(Path("moevd"))


def test_an_option_is_left_out_with_its_value_wherever_it_stands() -> None:
    words = ("studies/x.toml", "--set", "steps=3", "--seeds", "5,6", "--name", "seeds")
    assert drop_options(words, "--name") == ("studies/x.toml", "--set", "steps=3", "--seeds", "5,6")
    assert drop_options(words, "--seeds", "--name") == ("studies/x.toml", "--set", "steps=3")
    assert drop_options(words[:1], "--name") == words[:1]
