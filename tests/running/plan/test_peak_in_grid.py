"""`plan` warns where the values of `[verdict] over = KEY` hold no peak by earlier runs."""

from counting import Bench

from gspo_lab.running.plan import plan
from gspo_lab.running.plan.peak_in_grid import peak_warnings

OVER = """
[sweep]
"update.learning_rate" = {values}
[verdict]
over = "update.learning_rate"
"""
RIGHT = {"1e-05": 2, "0.0001": 5, "0.001": 3}
"""Problems that a run of either arm answers right, by its learning rate."""
GRIDS = {
    "[1e-5, 1e-4, 1e-3]": "",
    "[1e-4, 1e-3, 1e-2]": "at 0.0001, an end of 0.0001 to 0.01; add values below 0.0001",
    "[1e-7, 1e-6, 1e-5]": "at 0.0001, outside 1e-07 to 1e-05; add values above 0.0001",
}


def test_a_grid_without_the_peak_of_earlier_runs_is_told(bench: Bench) -> None:
    bench.verdict = OVER.format(values="[1e-5, 1e-4, 1e-3]")
    for arm in bench.study().arms.values():
        bench.right |= {f"{arm.name}/s{seed}": RIGHT[f"{arm.dose:g}"] for seed in (0, 1)}
    bench.finish()
    for values, end in GRIDS.items():
        bench.verdict = OVER.format(values=values)
        study = bench.study(name="next")
        warnings = peak_warnings(study, bench.runs)
        assert plan(study, bench.runs).warnings == warnings
        expected = [
            f"warning: the values of update.learning_rate may hold no peak of {arm}: in earlier"
            f" runs (count) it scored highest {end}"
            for arm in "ab"
        ]
        assert warnings == (expected if end else [])


def test_one_earlier_value_tells_nothing(bench: Bench) -> None:
    bench.finish()
    bench.verdict = OVER.format(values="[1e-4, 1e-3, 1e-2]")
    assert peak_warnings(bench.study(name="next"), bench.runs) == []
