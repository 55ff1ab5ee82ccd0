"""A recorder's own choices: without detail, and without word on which responses were evaluated."""

import torch
from assertions import assert_fields

from gspo_lab.training.objectives.presets import PRESETS
from gspo_lab.training.objectives.recorder import Recorder


def test_all_responses_count_and_detail_waits_for_its_step() -> None:
    recorder = Recorder(PRESETS["grpo"], {"grpo": (0.2, 0.27)}, detail_every=2)
    mask_BT = torch.tensor([[True, True], [True, False]])
    record = recorder.update(
        step=1,
        minibatch=0,
        log_ratio_BT=torch.zeros(2, 2),
        mask_BT=mask_BT,
        adv_BT=torch.tensor([[1.0, 1.0], [-1.0, -1.0]]),
        metrics={"clip_fraction_tokens": torch.zeros(2, 2, dtype=torch.bool)},
    )
    assert_fields(record, response_tokens=3, clip_fraction_tokens=0, response_detail=None)
