"""What may change once a study has begun, and what may not."""

import json
from pathlib import Path

import pytest
from calling import lab_error
from counting import Bench
from laboratory import json_of, write_lines

from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.report.views.provenance import reproduce
from gspo_lab.running.conduct import study_lock
from gspo_lab.study import Declaration, Study, digest
from gspo_lab.study.declaration import LOCKED, identity


def declare(study: Study, home: Path) -> JsonObject:
    """What study.json holds after `study` was declared."""
    return study_lock.declare(study, home).to_json()


def lock_digest(content: JsonObject) -> str:
    return digest({key: content[key] for key in LOCKED if key in content})


def begin(bench: Bench, *runs: str) -> JsonObject:
    """Declare the study and let runs have recorded something."""
    content = declare(bench.study(), bench.home)
    leave_begun(bench, *runs)
    return content


BEGUN = '{"kind":"status","state":"started","step":0}'


def leave_begun(bench: Bench, *runs: str) -> None:
    for run in runs:
        (bench.home / run).mkdir(parents=True)
        write_lines(bench.home / run / "journal.jsonl", [BEGUN])


def on_disk(bench: Bench) -> JsonObject:
    content: JsonObject = json_of(bench.home / "study.json")
    return content


def test_the_declaration_holds_the_whole_study_which_may_change_before_its_first_record(
    bench: Bench,
) -> None:
    for bench.steps in (4, 7):
        content = begin(bench)
        assert on_disk(bench) == content
        assert content.items() >= bench.study().locked().items()
        assert content["digest"] == digest(bench.study().locked())
        assert content["reference_bands"] == {"grpo": [0.2, 0.27], "gspo": [3e-4, 4e-4]}
        assert (content["arms"]["a"]["settings"]["steps"], content["edits"]) == (bench.steps, [])


RATE = "update.learning_rate"
SWEEP = f"[sweep]\n{RATE} = [1e-4, 1e-3]"
OTHER = ("steps: 4 -> 7", "objective.clip_high: 0.0004 -> 0.001 (arm b)")


def begun_run(bench: Bench) -> str:
    return "a@0.0001/s0" if bench.b == SWEEP else "a/s0"


@pytest.mark.parametrize(
    ("first", "later", "how", "keys", "details"),
    [
        ("", "clip_high = 0.001", {"steps": 7}, r"steps, objective\.clip_high", OTHER),
        (
            "",
            "",
            {"overrides": ["verdict.margin=0.5"]},
            "verdict.margin",
            ("verdict.margin: 0.02 -> 0.5",),
        ),
        (SWEEP, "", {}, "sweep", (f"sweep: {RATE} -> unset",)),
        (
            SWEEP,
            "[sweep]\nupdate.epochs = [1, 2]",
            {},
            "sweep",
            (f"sweep: {RATE} -> update.epochs",),
        ),
    ],
)
def test_a_begun_study_refuses_other_settings_and_another_rule_by_name(
    bench: Bench, first: str, later: str, how: JsonObject, keys: str, details: Strings
) -> None:
    bench.b = first
    original = begin(bench, begun_run(bench), *(() if first else ["b/s0"]))
    bench.b = later
    with lab_error(rf"\({keys}\).*--name NEW.*--fresh") as refused:
        declare(bench.study(**how), bench.home)
    assert refused.value.details == details
    assert on_disk(bench) == original


WAIVE = "[waive]\nstd-one-arm = "
CLAIMS = [f'[[claim]]\nname = "{name}"\n' for name in ("C14-more-efficient", "C01-first-minibatch")]


@pytest.mark.parametrize(
    ("first", "later", "holds"),
    [
        (
            "",
            {
                "clip_high = 0.001": [
                    "arm b, before its first step: objective.clip_high: 0.0004 -> 0.001"
                ]
            },
            {},
        ),
        (
            SWEEP,
            {
                SWEEP.replace("1e-4", "3e-4"): [
                    "arms added: a@0.0003, b@0.0003",
                    f"values of {RATE} added: 0.0003",
                ]
            },
            {"sweep": {"key": RATE, "doses": [1e-4, 3e-4, 1e-3]}},  # none is lost
        ),
        (
            "",
            {
                WAIVE + "'asked so'": ["waived std-one-arm: asked so"],
                WAIVE + "'mine'\ndual-clip-one-arm = 'too'": [
                    "waived std-one-arm: mine; was: asked so",
                    "waived dual-clip-one-arm: too",
                ],
                "": [],  # the runs were begun under it
            },
            {"waive": {"std-one-arm": "mine", "dual-clip-one-arm": "too"}},
        ),
        (
            "",
            {
                CLAIMS[0]: ["claims now C14-more-efficient ("],
                "".join(CLAIMS): ["claims now C14-more-efficient, C01-first-minibatch ("],
            },
            {"claims": None},  # they do not count
        ),
    ],
    ids=["an arm that has not begun", "doses", "waivers", "claims"],
)
def test_what_may_be_added_later_is_noted_once(
    bench: Bench, first: str, later: dict[str, list[str]], holds: JsonObject
) -> None:
    """`later`: what arm b's table and those behind it become, with the edits that note it."""
    bench.b = first
    edits = []
    begin(bench, begun_run(bench))
    for bench.b, noted in later.items():
        edits += noted
        content = declare(bench.study(), bench.home)
        result = [edit["what"] for edit in content["edits"]]
        assert all(text.startswith(edit) for text, edit in zip(result, edits, strict=True)), result
        assert content["digest"] == lock_digest(content)
        assert declare(bench.study(), bench.home) == content, "the same start again is no edit"
    assert {key: content.get(key) for key in holds} == holds


def test_an_arm_that_was_run_and_is_no_longer_declared_is_missed(bench: Bench) -> None:
    content = begin(bench, "a/s0", "b/s0")
    del content["arms"]["a"]
    (bench.home / "study.json").write_text(json.dumps(content))
    with lab_error(r"study\.json does not declare a, which has been run: restore it"):
        declare(bench.study(), bench.home)


def test_the_names_of_a_contrast_may_be_added_and_never_change(bench: Bench) -> None:
    contrast = "verdict.contrast={a = -1, b = 1}"
    names = ["the new rule", "the old rule"]
    bench.b = "clip_high = 0.001"
    original = declare(bench.study(overrides=[contrast]), bench.home)
    assert "names" not in original["verdict"]
    leave_begun(bench, "a/s0")
    content = declare(bench.study(overrides=[contrast, f"verdict.names={names}"]), bench.home)
    assert content["verdict"] == {**original["verdict"], "names": names}
    assert [edit["what"] for edit in content["edits"]] == ["verdict.names, was: unset"]
    swapped = bench.study(overrides=[contrast, f"verdict.names={names[::-1]}"])
    with lab_error(r"verdict\.names was .* cannot change"):
        declare(swapped, bench.home)
    assert content["digest"] == lock_digest(content) != original["digest"]
    initial = Declaration.parse(original, "here")
    repeated = Declaration.parse(content, "here")
    assert identity(initial) == identity(repeated), (
        "it is the same study: what replicates one replicates the other"
    )


def test_seeds_and_arms_may_be_added_and_are_noted(bench: Bench) -> None:
    original = begin(bench, "a/s0", "b/s0")
    bench.seeds = [1, 2]
    bench.b += '\n[arm.c]\nobjective = "gspo"\nclip_low = 0.01'
    content = declare(bench.study(), bench.home)
    assert content["seeds"] == [0, 1, 2], "a seed that this start leaves out stays declared"
    assert list(content["arms"]) == ["a", "b", "c"]
    assert [edit["what"] for edit in content["edits"]] == ["seeds added: 2", "arms added: c"]
    assert content["created"] == original["created"]
    assert content["digest"] == lock_digest(content) != original["digest"]
    assert content["reference_bands"] == original["reference_bands"]
    assert declare(bench.study(), bench.home) == content, "the same start again is no edit"


def test_what_to_type_is_kept_for_each_start_that_let_the_study_grow(bench: Bench) -> None:
    home = bench.runs / "other"
    initial = declare(
        bench.study(seeds=[0], steps=7, overrides=["update.epochs=2"], name="other"), home
    )
    file = "studies/count.toml"  # the fixture's path is that of this machine, and is not kept
    words = ["--set", "update.epochs=2", "--seed", "0", "--steps", "7", "--name", "other"]
    assert initial["commands"] == [[file, *words]]
    (home / "a/s0").mkdir(parents=True)
    write_lines(home / "a/s0/journal.jsonl", [BEGUN])
    same = {"steps": 7, "overrides": ["update.epochs=2"], "name": "other"}
    assert declare(bench.study(seeds=[0], arms=["b"], **same), home) == initial, (
        "it declares nothing new"
    )
    grown = declare(bench.study(seeds=[1, 4], arms=["b", "a"], **same), home)
    additions = [
        "--set",
        "update.epochs=2",
        "--seeds",
        "1,4",
        "--steps",
        "7",
        "--arms",
        "b,a",
        "--name",
        "other",
    ]
    assert grown["commands"] == [[file, *words], [file, *additions]]
    assert grown["digest"] == lock_digest(grown)
    assert reproduce(Declaration.parse(grown, "here")) == [
        "gspo-lab run studies/count.toml --set update.epochs=2 --seed 0 --steps 7 --name other",
        (
            "gspo-lab run studies/count.toml --set update.epochs=2 --seeds 1,4 --steps 7 --arms b,a"
            " --name other"
        ),
        "gspo-lab certify other",
        "gspo-lab report other",
    ]
    unknown = {key: backup for key, backup in grown.items() if key != "commands"}
    assert reproduce(Declaration.parse(unknown, "here")) == [
        "gspo-lab certify other",
        "gspo-lab report other",
    ]


def test_fresh_moves_the_old_runs_away(bench: Bench) -> None:
    begin(bench, "a/s0", "b/s0")
    old = (bench.home / "a/s0/journal.jsonl").read_bytes()
    bench.seeds = [0]
    bench.steps = 1
    with lab_error("--fresh"):
        bench.conduct()
    bench.finish(fresh=True)
    assert (bench.runs / "_archive/count-1/a/s0/journal.jsonl").read_bytes() == old
    assert bench.steps_of("a/s0") == [0]
    assert study_lock.archive(bench.home, bench.runs, "count") == bench.runs / "_archive/count-2"


def test_a_start_that_declares_nothing_new_leaves_the_file_of_an_earlier_version(
    bench: Bench,
) -> None:
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
    with lab_error("was edited after it was locked, and cannot grow"):
        study_lock.declare(bench.study(seeds=[0, 1, 7]), bench.home)
    assert (bench.home / "study.json").read_text() == text


def test_what_runs_have_begun_by_is_kept_when_the_study_grows(bench: Bench) -> None:
    initial = begin(bench, "a/s0", "b/s0")
    bench.seeds = [0, 1, 2]
    grown = declare(bench.study(), bench.home)
    assert [lock_digest(entry) for entry in grown["superseded"]] == [initial["digest"]]
    assert grown["superseded"][0]["verdict"] == initial["verdict"]
    bench.seeds = [0, 1, 2, 3]
    assert [lock_digest(entry) for entry in declare(bench.study(), bench.home)["superseded"]] == [
        initial["digest"],
        grown["digest"],
    ]
    assert study_lock.declare(bench.study(), bench.home).digest == on_disk(bench)["digest"]
