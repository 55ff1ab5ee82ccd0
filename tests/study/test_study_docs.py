"""The guide's example loads, and its overrides apply."""

import re
import shlex
from pathlib import Path

from gspo_lab.study import load_study

DOCS = Path(__file__).parents[2] / "docs"


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
