"""The guide's example loads, its overrides apply, and presets have the values written in the reference."""

import re
import shlex
from pathlib import Path
from typing import get_args

from gspo_lab.keys import Replay
from gspo_lab.objectives.presets import CORRECTION_RANGES, PRESETS
from gspo_lab.objectives.ratios import Level
from gspo_lab.objectives.settings import Advantage, Aggregation, Correction
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


def test_the_formulas_have_every_choice_and_every_preset() -> None:
    text = (DOCS / "reference/objectives.md").read_text(encoding="utf-8")
    choices = [get_args(one) for one in (Level, Aggregation, Advantage, Replay, Correction)]
    for choice in (value for values in choices for value in values):
        assert f"| `{choice}` |" in text
    for correction, (low, high) in CORRECTION_RANGES.items():
        assert re.search(rf"^\| `{correction}` \| .* \| {low:g}, {high:g} \|", text, re.M)
    for name, preset in PRESETS.items():
        rows = re.findall(rf"^\| `{re.escape(name)}` \| `(.+?)` \| (\S+) \| (\S+) \|", text, re.M)
        assert rows, f"docs/reference/objectives.md needs a row for the preset {name}, under clip, clip_low, clip_high"
        level, low, high = rows[0]
        assert (level, float(low), float(high)) == (preset.importance_sampling_level, preset.clip_low, preset.clip_high)
