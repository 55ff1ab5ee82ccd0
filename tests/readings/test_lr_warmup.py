"""From which step on a run has its full learning rate: by the schedule, and by its record where its groups vary."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import TWO_ARMS, Change, make_lab

from gspo_lab.claims.data import ClaimData
from gspo_lab.claims.estimates import Untestable
from gspo_lab.readings import Source, by_minibatch
from gspo_lab.readings.curves import onsets
from gspo_lab.readings.reading import CLIP
from gspo_lab.readings.runs import first_settled
from gspo_lab.records import Record, UpdateRecord
from gspo_lab.store import Evidence
from gspo_lab.study import Run

DROPPED = TWO_ARMS + "rollout = {{dynamic_sampling = 2}}\n"
"""GSPO's groups vary. The rate rises over eight updates, four a step: by the schedule step 2 is the first settled."""


def rising(updates: Sequence[int], *, unknown: bool = False) -> Change:
    """Each step makes so many updates, the last entry all later ones; update n has (n + 1) / 8 of the learning rate."""

    def change(run: Run, record: Record) -> Record | None:
        if not isinstance(record, UpdateRecord):
            return record
        made = [*updates, *[updates[-1]] * run.settings.steps]
        if record.minibatch >= made[record.step]:
            return None
        part = min(1.0, (sum(made[: record.step]) + record.minibatch + 1) / 8)
        return replace(record, learning_rate=None if unknown else part * run.settings.update.learning_rate)

    return change


@pytest.mark.parametrize(
    ("updates", "unknown", "first"),
    [
        ((4,), False, 2),  # update 7, the last of step 1, is the first with all of it
        ((0, 2, 2, 4), False, 4),  # updates 0, 1 | 2, 3 | 4 to 7 | 8
        ((1,), False, 7),  # update 7 is step 7
        ((0, 2, 2, 4), True, 2),  # nothing says otherwise
        ((0,), False, 2),  # no update at all
    ],
)
def test_where_groups_vary_the_record_says_when_the_rate_is_full(
    tmp_path: Path, updates: Sequence[int], unknown: bool, first: int
) -> None:
    with Evidence.open(make_lab(tmp_path, DROPPED, seeds=1, change=rising(updates, unknown=unknown))) as evidence:
        # GRPO's groups do not vary: its schedule holds, whatever a record says.
        assert first_settled(Source(evidence, "toy")) == {"toy/grpo/s0": 2, "toy/gspo/s0": first}


def test_claims_clip_shares_onsets_and_spikes_begin_there(tmp_path: Path) -> None:
    """Of 54 steps GSPO's last 50 are settled, four updates of 576 tokens each: the 50 that norms and signals are held
    against, and none left to be judged. GRPO's are settled from step 2 on: two are left."""
    with Evidence.open(make_lab(tmp_path, DROPPED, seeds=1, steps=54, change=rising((0, 2, 2, 4)))) as evidence:
        found = Source(evidence, "toy")
        assert [pool.weight for pool in by_minibatch(found, CLIP)["toy/gspo/s0"].values()] == [50 * 576] * 4
        assert first_settled(found) == {"toy/grpo/s0": 2, "toy/gspo/s0": 4}
        judged = {arm: onsets(found, f"toy/{arm}/s0")["grad_norm"].judged for arm in found.arms}
        assert judged == {"grpo": True, "gspo": False}


def test_a_run_whose_rate_never_became_full_has_nothing_that_is_settled(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, DROPPED, seeds=1, steps=7, change=rising((1,)))) as evidence:
        with pytest.raises(Untestable, match="only the warm-up") as raised:
            ClaimData(Source(evidence, "toy")).value(CLIP, "gspo", 0)
        assert raised.value.reason.data == {"arm": "gspo", "steps": 7, "planned": 7, "later": True}
