"""The guide's example loads, and its overrides apply; engines take the quickstart."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.running.plan.preflight import lint_findings
from gspo_lab.study import load_study
from gspo_lab.training.engines.check import check_engine

DOCS = Path(__file__).parents[2] / "docs"


no_trl = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: nox -s trl")
trl = pytest.param("trl", marks=[pytest.mark.trl, no_trl])


@pytest.mark.parametrize("engine", ["native", trl, "verl"])
def test_the_quickstart_is_accepted_by_every_engine_with_the_papers_aggregation(
    engine: str,
) -> None:
    study = load_study(DOCS.parent / "studies/quickstart.toml", overrides=[f"engine={engine}"])
    for arm in study.arms.values():
        check_engine(arm.name, arm.settings)


def test_areal_names_the_options_under_which_it_takes_the_quickstart() -> None:
    path = DOCS.parent / "studies/quickstart.toml"
    (arm, *_) = load_study(path, overrides=["engine=areal"]).arms.values()
    with lab_error(r"--set arm.NAME.KEY=VALUE\); to compare what it can do: --set") as refused:
        check_engine(arm.name, arm.settings)
    words = shlex.split(str(refused.value).partition("can do: ")[2])
    own_key = "arm.gspo.update.warmup_updates="
    overrides = ["engine=areal", *words[1::2], f"{own_key}3", f"{own_key}0"]
    with lab_error("raises the learning rate by shares"):
        for arm in load_study(path, overrides=overrides[:-1]).arms.values():
            check_engine(arm.name, arm.settings)
    study = load_study(path, overrides=overrides)
    for arm in study.arms.values():
        check_engine(arm.name, arm.settings)
    assert not any(finding.level == "error" for finding in lint_findings(study))


def test_the_guide_s_study_loads_and_its_overrides_apply(tmp_path: Path) -> None:
    text = (DOCS / "how-to/write-a-study.md").read_text(encoding="utf-8")
    example, tune = re.findall(r"```toml\n(.*?)```", text, re.S)
    path = tmp_path / "my_study.toml"
    path.write_text(example)
    study = load_study(path)
    assert study.comment == study.question
    assert [arm.settings.objective.clip_low for arm in study.arms.values()] == [3e-4, 3e-3]
    path.write_text(f"{example}\n{tune}".replace("[tune.arm.gspo]", "[tune.arm.paper]"))
    told = load_study(path).tune
    assert (told.number, len(told.keys("paper")), len(told.keys("wide"))) == (4, 3, 1)
    path.write_text(example)
    (console,) = re.findall(r"```console\n(.*?)```", text, re.S)
    overrides = [word for word in shlex.split(console.replace("$", "")) if "=" in word]
    assert len(overrides) == 5
    for override in overrides:
        assert load_study(path, overrides=[override]).locked() != study.locked(), override
