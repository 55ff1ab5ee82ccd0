"""What a study's file says is what its arms resolve to.

All its mistakes are reported, by dotted path.
"""

from pathlib import Path

import pytest
from calling import lab_error
from case_tables import cases
from study_files import ARMS, SHARED, load, mistakes

from gspo_lab.common.errors import LabError
from gspo_lab.study import flat, load_study
from gspo_lab.study.load import study_file

STUDIES = Path(__file__).parents[2] / "studies"


def test_a_small_study_is_read_whole(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert (study.name, study.question, study.seeds) == ("tiny", "Which is it?", (0, 1))
    assert study.comment == "A comment that\nopens the file."
    assert list(study.arms) == ["grpo", "gspo"]
    settings = study.arms["gspo"].settings
    assert (settings.steps, settings.task.name, settings.rollout.prompts_per_step) == (
        3,
        "addition",
        8,
    )
    assert [(bench.name, bench.problems, bench.task) for bench in settings.bench] == [
        ("sums", 4, None)
    ]
    assert study.verdict.margin == 0.02


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_studies_load_and_open_with_their_question(path: Path) -> None:
    study = load_study(path)
    first, _, rest = study.comment.partition("\n")
    assert first.endswith("?"), "the file opens with the question, as a comment"
    assert len(rest) > 100, "and says how its regime was found"
    assert study.question.endswith("?")
    assert len(study.arms) >= 2
    assert len(study.seeds) >= 3, "fewer give no verdict"
    assert study.arms[next(iter(study.arms))].settings.bench, (
        "without a benchmark nothing is decided"
    )


def test_an_arm_s_keys_go_over_the_shared_ones_and_those_over_the_preset_s(tmp_path: Path) -> None:
    shared = '[objective]\npreset = "gspo"\nclip_high = 0.5\nkl_coef = 0.01\n'
    arms = (
        '[arm.a]\nkl_coef = 0.02\n[arm.b]\nobjective = "grpo"\n[arm.c]\nobjective ='
        ' "grpo"\nclip_high = 0.3\n'
    )
    study = load(tmp_path, SHARED + shared + arms)
    found = {name: arm.settings.objective for name, arm in study.arms.items()}
    got = {
        name: (one.preset, one.importance_sampling_level, one.clip_low, one.clip_high, one.kl_coef)
        for name, one in found.items()
    }
    assert got == {
        "a": ("gspo", "sequence", 3e-4, 0.5, 0.02),
        "b": ("grpo", "token", 0.2, 0.5, 0.01),
        "c": ("grpo", "token", 0.2, 0.3, 0.01),
    }


def test_an_arm_declares_what_it_states_and_what_its_preset_changes(tmp_path: Path) -> None:
    arm = (
        '[arm.more]\nobjective = "gspo"\nrouting_replay = "rollout"\n[arm.more.update]\nminibatches'
        " = 4\n"
    )
    arms = load(tmp_path, SHARED + ARMS + arm).arms
    assert arms["more"].declared == (
        "objective.clip_high",
        "objective.clip_low",
        "objective.importance_sampling_level",
        "objective.preset",
        "routing_replay",
        "update.minibatches",
    )
    resolved = {name: flat(one.settings.model_dump(mode="json")) for name, one in arms.items()}
    for a, b in (("grpo", "gspo"), ("grpo", "more"), ("gspo", "more")):
        different = {key for key in resolved[a] if resolved[a][key] != resolved[b][key]}
        assert different
        assert different <= {*arms[a].declared, *arms[b].declared}


def test_every_mistake_is_told_at_once_by_its_dotted_path(tmp_path: Path) -> None:
    text = """\
        qestion = "typo"
        seeds = [0, 0]
        steps = 0
        task = "addition"
        [rolout]
        [update]
        learning_rat = 1e-3
        minibatches = "many"
        [[bench]]
        name = "a b"
        sample = 3
        [verdict]
        marign = 0.1
        [arm.a]
        clip_lwo = 0.1
        [arm.b]
        [arm.c]
        objective = "gsop"
        [arm.d.update]
        epoch = 2
        [arm.e]
        steps = 3
    """
    found = mistakes(tmp_path, text)
    starts = [line.partition(": ")[0] for line in found]
    assert sorted(starts) == sorted(
        [
            "qestion",
            "question",
            "seeds",
            "steps",
            "rolout",
            "update.learning_rat",
            "update.minibatches",
            "bench.0.name",
            "bench.0.sample",
            "verdict.marign",
            "arm.a.clip_lwo",
            "arm.b",
            "arm.c.objective",
            "arm.d.update.epoch",
            "arm.e.steps",
        ]
    )
    said = dict(zip(starts, found, strict=True))
    for path, name in {
        "qestion": "question",
        "rolout": "rollout",
        "update.learning_rat": "learning_rate",
        "bench.0.sample": "samples",
        "verdict.marign": "margin",
        "arm.a.clip_lwo": "clip_low",
        "arm.c.objective": "gspo",
        "arm.d.update.epoch": "epochs",
    }.items():
        assert f"(did you mean '{name}'?)" in said[path]
    assert (
        said["arm.b"]
        == "arm.b: this table changes nothing; say what the arm does, e.g. objective = 'gspo'"
    )
    assert (
        said["arm.e.steps"]
        == "arm.e.steps: arms cannot differ in 'steps'; it belongs to the whole study"
    )
    assert said["steps"].endswith("; got 0")


def test_a_benchmark_s_mistake_names_it_and_slips_of_the_finger_are_understood(
    tmp_path: Path,
) -> None:
    bench = SHARED.replace('name = "sums"', 'name = "held-out"\nsample = 3')
    [line] = mistakes(tmp_path, bench + ARMS)
    assert line == "bench.held-out.sample: unknown key (did you mean 'samples'?)"
    [line] = mistakes(tmp_path, SHARED + ARMS.replace('"gspo"', '"gpso"'))
    assert "(did you mean 'gspo'?)" in line
    own = ARMS.replace("[arm.gspo]", '[arm.gspo]\npolicy_loss = "mine.py:LOSS"\nqqqqqqqq = 2')
    assert any(
        "qqqqqqqq: unknown key (keys of your own loss belong in loss_options)" in x
        for x in mistakes(tmp_path, SHARED + own)
    )
    [line] = mistakes(tmp_path, SHARED + ARMS.replace("[arm.gspo]", '[arm."gspö"]'))
    assert "names are made of at most 100 of a to z, A to Z" in line


def test_a_mistake_in_the_shared_objective_is_told_once(tmp_path: Path) -> None:
    shared = '[objective]\npreset = "grp"\nclip_low = -1\nclip_hihg = 2\n'
    found = mistakes(tmp_path, SHARED + shared + "[arm.a]\nkl_coef = 0.1\n[arm.b]\nkl_coef = 0.2\n")
    assert [line.partition(": ")[0] for line in found] == [
        "objective.preset",
        "objective.clip_low",
        "objective.clip_hihg",
    ]
    assert "(did you mean 'grpo'?)" in found[0]
    assert "(did you mean 'clip_high'?)" in found[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '[arm.a.objective]\nclip_low = 0.1\n[arm.b]\nobjective = "gspo"\n',
            "arm.a.objective: must be a preset's name",
        ),
        (
            '[objective]\npreset = ["gspo"]\n[arm.a]\nkl_coef = 1\n',
            "objective.preset: must be a preset's name",
        ),
        ('objective = "gspo"\n[arm.a]\nkl_coef = 1\n', "objective: must be a table"),
        (
            '[arm.a]\npreset = "gspo"\n',
            "arm.a.preset: unknown key (an arm names its preset with objective = '...')",
        ),
        ("[arm._a]\nkl_coef = 0.1\n", "arm._a: names are made of"),
        ('[arm."a/b"]\nkl_coef = 0.1\n', "arm.a/b: names are made of"),
        (
            "[arm.a]\nkl_coef = 0.1\n[arm.A]\nkl_coef = 0.2\n",
            "arm.A: differs from arm.a in capitals alone",
        ),
        ("arm = 3\n", "arm: a study needs at least one [arm.NAME] table"),
        ("arm.a = 3\n", "arm.a: must be a table, [arm.a]"),
        ("", "arm: a study needs at least one [arm.NAME] table"),
        ("update = 3\n[arm.a]\nkl_coef = 1\n", "update: "),
        (
            "clip_low = 0.1\n" + ARMS,
            "clip_low: unknown key (it belongs under [objective] or an arm)",
        ),
        (
            "[update]\nlearning_rate = inf\n" + ARMS,
            "update.learning_rate: input should be a finite number",
        ),
        ("[update]\nlearning_rate = nan\n" + ARMS, "update.learning_rate: input should be"),
    ],
)
def test_what_is_of_the_wrong_kind_is_told(tmp_path: Path, text: str, line: str) -> None:
    found = mistakes(tmp_path, 'question = "?"\ntask = "addition"\n' + text)
    assert len(found) == 1, found
    assert found[0].startswith(line)


@pytest.mark.parametrize(
    ("key", "most", "too_much"),
    cases(__file__, "bounds"),
)
def test_numbers_have_bounds_on_both_sides(
    tmp_path: Path, key: str, most: str, too_much: str
) -> None:
    load(tmp_path, overrides=[f"{key}={most}"])
    (only,) = mistakes(tmp_path, overrides=[f"{key}={too_much}"])
    assert only.startswith(key)


def test_broken_toml_is_one_line_with_its_place(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, "question = \n")
    assert only.startswith(f"{tmp_path / 'tiny.toml'}: not valid TOML: ")
    assert "line 1" in only
    (tmp_path / "latin.toml").write_bytes(b'question = "\xe9?"')
    with lab_error(r"latin\.toml: not valid TOML"):
        load_study(tmp_path / "latin.toml")
    for text, said in (
        (f"steps = {'9' * 5000}", "not valid TOML: Exceeds the limit"),
        (f"a = {'[' * 100_000}", "not valid TOML: too deeply nested"),
        (f"[sweep]\n{'.'.join('a' * 2000)} = [1, 2]", "more than 20 deep"),
    ):
        (only,) = mistakes(tmp_path, text)
        assert said in only
    (only,) = mistakes(tmp_path, overrides=[f"steps={'9' * 5000}"])
    assert only.startswith("steps: input should be a valid integer")


def test_the_mark_before_utf_8_is_no_part_of_a_study_and_utf_16_is_told(tmp_path: Path) -> None:
    plain = load(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_bytes((SHARED + ARMS).replace("\n", "\r\n").encode("utf-8-sig"))
    assert load_study(path) == plain
    assert load_study(path).comment == plain.comment == "A comment that\nopens the file."
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        path.write_bytes((SHARED + ARMS).encode(encoding))
        with pytest.raises(LabError) as caught:
            load_study(path)
        assert (
            str(caught.value)
            == f"{path}: is UTF-16 or UTF-32 text, TOML is UTF-8; save it with the encoding UTF-8"
        )


def test_a_missing_file_is_told_with_the_nearest_name_beside_it(tmp_path: Path) -> None:
    for name in ("quickstart", "other"):
        (tmp_path / f"{name}.toml").touch()
    with pytest.raises(LabError) as caught:
        load_study(tmp_path / "quikstart.toml")
    assert (
        str(caught.value)
        == f"no study file {tmp_path / 'quikstart.toml'} (did you mean 'quickstart'?); {tmp_path}/"
        " has other, quickstart"
    )
    with lab_error("no study file"):
        load_study(tmp_path / "nowhere" / "x.toml")
    with lab_error("no study file"):
        load_study(tmp_path)


@pytest.mark.parametrize("name", ["../up", "a b", "_archive", "", ".hidden", "a/b"])
def test_a_study_s_name_is_fit_for_a_folder(tmp_path: Path, name: str) -> None:
    (only,) = mistakes(tmp_path, name=name)
    assert only.startswith(f"a study cannot be named '{name}'")
    assert load(tmp_path, name="fine-1.0_b").name == "fine-1.0_b"


@pytest.mark.parametrize(
    ("written", "seeds"),
    [
        ("3", (0, 1, 2)),
        ("[5, 2]", (5, 2)),
        ("1", (0,)),
        ("[0]", (0,)),
        *(
            (wrong, None)
            for wrong in (
                "0",
                "[]",
                "[0, 0]",
                "[-1]",
                "[0.5]",
                "[true]",
                "true",
                '"3"',
                "2.0",
                "10001",
            )
        ),
    ],
)
def test_seeds_are_a_count_or_a_list(
    tmp_path: Path, written: str, seeds: tuple[int, ...] | None
) -> None:
    text = (SHARED + ARMS).replace("seeds = 2", f"seeds = {written}")
    if seeds is not None:
        assert load(tmp_path, text).seeds == seeds
    else:
        (only,) = mistakes(tmp_path, text)
        assert only.startswith("seeds: ")


def test_an_arm_s_table_changes_only_the_keys_that_it_names(tmp_path: Path) -> None:
    arm = (
        '[arm.slow]\nobjective = "gspo"\nmodel = "tiny-olmoe"\n[arm.slow.update]\nlearning_rate ='
        " 1e-5\n"
    )
    settings = load(tmp_path, SHARED + ARMS + arm).arms["slow"].settings
    assert (settings.update.learning_rate, settings.update.minibatches, settings.model) == (
        1e-5,
        2,
        "tiny-olmoe",
    )


@pytest.mark.parametrize("place", ["mine.v2.toml", "studies/mine.v2.toml", "mine.v2/mine.v2.toml"])
def test_a_study_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Beside the caller, in studies/, or in the folder of its name; a dot is no ending."""
    monkeypatch.chdir(tmp_path)
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).touch()
    assert study_file(Path("mine.v2")) == Path(place)
    assert study_file(Path("other")) == Path("other")
