"""`plan` warns where the values of `[verdict] over = KEY` hold no peak by earlier runs.

It proposes values that do.
"""

import pytest
from case_tables import cases
from counting import Bench

from gspo_lab.running.plan import plan
from gspo_lab.running.plan.peak_in_grid import earlier_curves, peak_warnings, proposed_grid
from gspo_lab.study.schema import RATE

OVER = """
[sweep]
{key} = {values}
[verdict]
over = "{key}"
"""
RIGHT = {"1e-05": 2, "0.0001": 5, "0.001": 3}
"""Problems of ten that a run of either arm answers right, by its learning rate."""


def test_a_grid_without_the_peak_of_earlier_runs_is_told(bench: Bench) -> None:
    bench.verdict = OVER.format(key=RATE, values="[1e-5, 1e-4, 1e-3]")
    for arm in bench.study().arms.values():
        bench.right |= {f"{arm.name}/s{seed}": RIGHT[f"{arm.dose:g}"] for seed in (0, 1)}
    bench.finish()
    for values, end in cases(__file__, "grids").items():
        bench.verdict = OVER.format(key=RATE, values=values)
        study = bench.study(name="next")
        planned = plan(study, bench.runs)
        assert planned.warnings == [
            f"warning: the values of update.learning_rate may hold no peak of {arm}: in earlier"
            f" runs (count) it scored highest {end}"
            for arm in ("ab" if end else "")
        ]
        assert planned.to_json()["grid"]["values"] == (2e-5, 5e-5, 1e-4, 2e-4, 5e-4)
        (line,) = [line for line in planned.lines() if line.startswith("values to sweep")]
        # The vertex through .2, .5, .3 lies at 10^(-4 + .1). Within .02 of the peak lie
        # 10^(-4 - .02 / .3) = 8.6e-5 to 10^(-4 + .02 / .2) = 1.26e-4, then two values on each side.
        assert line == (
            "values to sweep, proposed by count, peaks at a 0.00013, b 0.00013:"
            " update.learning_rate = [2e-05, 5e-05, 0.0001, 0.0002, 0.0005]"
        )


@pytest.mark.parametrize(("key", "values", "curves", "grid"), cases(__file__, "proposals"))
def test_a_proposal_reaches_around_both_peaks_and_beyond_values_that_cut_one(
    bench: Bench, key: str, values: str, curves: dict[str, dict[str, float]], grid: str
) -> None:
    bench.verdict = OVER.format(key=key, values=values)
    by_rule = {}
    for rule, curve in curves.items():
        by_rule[rule] = dict(zip(map(float, curve), curve.values(), strict=True))
    proposed = proposed_grid(bench.study(), by_rule, ["count"])
    assert proposed is not None
    assert proposed.line().endswith(f": {key} = {grid}")


def test_one_earlier_value_tells_nothing(bench: Bench) -> None:
    bench.finish()
    bench.verdict = OVER.format(key=RATE, values="[1e-4, 1e-3, 1e-2]")
    study = bench.study(name="next")
    curves, names = earlier_curves(study, bench.runs)
    assert list(peak_warnings(study, curves, names)) == []
    assert proposed_grid(study, curves, names) is None
