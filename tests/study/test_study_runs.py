"""Arms times seeds: the runs' order and content.

Also the one set of reference ranges for all arms.
"""

import json
from pathlib import Path

import pytest
from case_tables import cases
from hypothesis import given
from hypothesis import strategies as st
from study_files import ARMS, SHARED, load, mistakes

from gspo_lab.study import Run, digest, flat
from gspo_lab.study.declaration import reference_bands
from gspo_lab.study.schema import UpdateTable


def test_pairs_are_interleaved_and_turn_about(tmp_path: Path) -> None:
    study = load(tmp_path, SHARED + ARMS + "[arm.more]\nkl_coef = 0.1\n", seeds=[4, 9, 1])
    assert [(run.seed, run.arm) for run in study.runs()] == [
        *[(4, "grpo"), (4, "gspo"), (4, "more")],
        *[(9, "more"), (9, "gspo"), (9, "grpo")],
        *[(1, "grpo"), (1, "gspo"), (1, "more")],
    ]


def test_a_run_crosses_the_wall_as_it_is(tmp_path: Path) -> None:
    study = load(
        tmp_path, overrides=["task.digits=2", 'rollout.stop=["x"]', "update.learning_rate=0.1"]
    )
    for run in study.runs():
        assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run
        assert run.base == str(tmp_path.resolve())
        assert run.settings.task.options == {"digits": 2}
    first = study.runs()[0]
    assert first.id == "tiny/grpo/s0"
    assert first.folder(Path("runs")) == Path("runs/tiny/grpo/s0")


def test_the_resolved_study_is_its_own_digest(tmp_path: Path) -> None:
    one = load(tmp_path)
    other = load(tmp_path, overrides=["update.learning_rate=2e-4"])
    assert digest(one.locked()) == digest(
        load(tmp_path, "# another comment\n" + SHARED + ARMS).locked()
    )
    assert digest(one.locked()) != digest(other.locked())
    assert json.loads(json.dumps(one.locked())) == one.locked()


def test_the_yardstick_is_the_first_arm_s_of_each_rule(tmp_path: Path) -> None:
    def bands(arms: str) -> dict[str, tuple[float, float]]:
        study = load(tmp_path, SHARED + arms)
        (only,) = {json.dumps(run.reference_bands) for run in study.runs()}
        assert json.loads(only) == {
            rule: list(band) for rule, band in study.runs()[0].reference_bands.items()
        }
        return study.runs()[0].reference_bands

    paper = {"grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)}
    assert bands(ARMS) == paper
    assert bands("[arm.a]\nclip_low = 0.1\n") == {**paper, "grpo": (0.1, 0.27)}
    wide = 'objective = "gspo-token"\nclip_low = 0.03\nclip_high = 0.04\n'
    assert bands(f'[arm.a]\nobjective = "grpo"\n[arm.b]\n{wide}[arm.c]\nobjective = "gspo"\n') == {
        **paper,
        "gspo": (0.03, 0.04),
    }
    assert reference_bands([]) == paper


Nested = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(
        st.text("ab", min_size=1, max_size=2), inner, min_size=1, max_size=3
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), Nested, max_size=4))
def test_flat_loses_nothing(data: dict[str, object]) -> None:
    rebuilt: dict[str, object] = {}
    for path, value in flat(data).items():
        *tables, key = path.split(".")
        place = rebuilt
        for table in tables:
            place = place.setdefault(table, {})  # type: ignore[assignment]
        place[key] = value
    assert rebuilt == data


@pytest.mark.parametrize(
    ("warmup", "minibatches", "epochs", "first"),
    cases(__file__, "warmups"),
)
def test_the_first_step_with_the_full_learning_rate(
    warmup: int, minibatches: int, epochs: int, first: int
) -> None:
    update = UpdateTable(warmup_updates=warmup, minibatches=minibatches, epochs=epochs)
    assert update.first_settled == first


def test_who_starts_the_workers_is_no_part_of_a_study(tmp_path: Path) -> None:
    plain = load(tmp_path)
    asked = load(
        tmp_path, SHARED + ARMS + "[launch.slurm]\ntime = '1:00'\n", overrides=["launch.ray.cpus=4"]
    )
    assert asked.launch.options["slurm"] == {"time": "1:00", "grace": 120, "cpus": 1, "options": []}
    assert asked.launch.options["ray"] == {"cpus": 4, "resources": {}, "retries": 3}
    assert digest(asked.locked()) == digest(plain.locked())
    assert asked == plain
    assert asked.command == plain.command
    assert [run.to_json() for run in asked.runs()] == [run.to_json() for run in plain.runs()]
    assert mistakes(tmp_path, SHARED + ARMS + "[launch.slurm]\npartitoin = 'x'\n") == [
        "launch.slurm.partitoin: unknown key (did you mean 'partition'?)"
    ]
