"""What the engine takes beside its usual input.

Tokens that others wrote, advantages by token, truncated responses, and a second trained model.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from lottery import TOOL, MakeRun, components, rollouts

from gspo_lab.common.paths import CHECKPOINTS, RESUME
from gspo_lab.training.engines.native import checkpoint
from gspo_lab.training.engines.native.experience import microbatches, pad_rollouts
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows, update_record
from gspo_lab.training.objectives import Batch, surrogate
from gspo_lab.training.objectives.presets import Objective
from gspo_lab.training.samplers.base import Request, Rollout


def test_a_tools_tokens_are_attended_to_and_not_trained_on(make_run: MakeRun) -> None:
    setting = components(make_run("gspo", "record.token_detail=true"))
    recorded = []
    for tool in (False, True):
        experience = pad_rollouts(rollouts(tool=tool), 0, setting.device)
        (part,) = microbatches(experience, torch.arange(2), 10**9)
        with torch.no_grad(), setting.policy.forward(part) as forward:
            recorded.append((experience, part, forward.logp_BT))
    (_, plain, plain_logp), (experience, part, logp) = recorded
    assert torch.equal(part.input_BS, plain.input_BS)
    assert torch.equal(part.attention_BS, plain.attention_BS)
    assert part.attention_BS.sum(dim=1).tolist() == [5, 4]
    mask_BT = torch.tensor([TOOL[0], [*TOOL[1], False]])
    assert torch.equal(part.mask_BT, mask_BT)
    # The tool's tokens stand before the last one as they did; only their own log-probs are nobody's
    # business.
    assert torch.allclose(logp, plain_logp * mask_BT, atol=1e-6)
    assert (logp[0, 1], logp[0, 2]) == (0.0, 0.0)

    experience.credit(torch.tensor([[1.0], [-1.0]]))
    assert experience.adv_NT.tolist() == [[1.0, 0.0, 0.0, 1.0], [-1.0, -1.0, -1.0, 0.0]]
    minibatch = MinibatchRows(0, 0, torch.arange(2), fresh=True)
    result = setting.updater.update(experience, minibatch)
    record = update_record(setting.updater, experience, result)
    assert_fields(record, response_tokens=5, active_tokens=5)
    assert record.response_detail["length"] == [2, 3]
    assert [len(values) for values in record.response_detail["log_ratios"]] == [2, 3]
    # Ratios are 1: mean over responses of the mean over tokens of A.
    assert record.loss == pytest.approx(-(1 - 1) / 2)


def test_advantages_may_differ_by_token(make_run: MakeRun) -> None:
    """At ratio 1 the gradient is linear in A.

    Those of either half of the tokens add up to that of all of them.
    """
    setting = components(make_run("gspo", "arm.gspo.objective=gspo-token"))
    setting.updater.trained.max_grad_norm = float("inf")
    model = setting.policy.model
    start = {name: value.clone() for name, value in model.state_dict().items()}
    caught: list[torch.Tensor] = []
    setting.updater.trained.optimizer.register_step_pre_hook(
        lambda *_: caught.append(torch.cat([p.grad.flatten().clone() for p in model.parameters()]))
    )
    earlier = torch.tensor([[2.0, 2.0, 0.0, 0.0]] * 2)
    later = torch.tensor([[0.0, 0.0, -2.0, -2.0]] * 2)
    for adv_NT in (earlier, later, earlier + later):
        experience = pad_rollouts(rollouts(tool=False), 0, setting.device)
        experience.credit(adv_NT)
        result = setting.updater.update(
            experience, MinibatchRows(0, 0, torch.arange(2), fresh=True)
        )
        model.load_state_dict(start)
    assert torch.linalg.norm(caught[0] + caught[1] - caught[2]) < 1e-5 * torch.linalg.norm(
        caught[2]
    )
    assert torch.linalg.norm(caught[2]) > 0
    # (2 + 2 - 2 - 2) / 4 and (2 + 2 - 2) / 3: the first response's advantages are no 0, though
    # their mean is.
    record = update_record(setting.updater, experience, result)
    assert record.active_tokens == 7
    assert record.response_detail["advantage"] == pytest.approx([0.0, 2 / 3])
    assert experience.adv_N.tolist() == pytest.approx([0.0, 2 / 3])


def test_a_damaged_checkpoint_and_another_runs_are_refused(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """A flipped bit in a hundred places of the file, and every cut.

    Each cut leaves the line behind it torn.
    """
    run = make_run("gspo")
    path = tmp_path / CHECKPOINTS / RESUME
    trained: Any = {
        "policy": SimpleNamespace(
            state=lambda: {"model": torch.arange(500.0)}, load=lambda state: None
        )
    }
    checkpoint.save(path, run.id, 3, trained, {"prompts": 8})
    assert checkpoint.load(path, run.id, trained) == (3, {"prompts": 8})
    with lab_error(
        rf"is of the run {run.id}, not of a/b/s1: .*delete it and the run starts again",
    ):
        checkpoint.load(path, "a/b/s1", trained)
    with lab_error("holds policy, and this run trains critic, policy: delete it") as refusal:
        checkpoint.load(path, run.id, trained | {"critic": trained["policy"]})
    assert "\n" not in str(refusal.value)
    content = path.read_bytes()
    flips = [
        content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
        for offset in range(0, len(content), len(content) // 100)
    ]
    cuts = [content[:length] for length in range(len(content) - 100, len(content) - 1)]
    for damaged in (*flips, *cuts, content[: len(content) // 2], b""):
        path.write_bytes(damaged)
        with lab_error("is damaged: delete it and the run starts again from its first step"):
            checkpoint.load(path, run.id, trained)


@pytest.mark.parametrize(
    ("aggregation", "method", "loss"),
    [
        # Response 0: 2 tokens, A = 1. Response 1: 3 tokens, A = -2, truncated. All ratios are 1.
        ("seq-mean-token-mean", "train", -(1 - 2) / 2),
        ("seq-mean-token-mean", "mask", -1 / 2),
        ("seq-mean-token-mean", "drop", -1 / 1),
        ("token-mean", "train", -(2 * 1 - 3 * 2) / 5),
        ("token-mean", "mask", -2 / 5),
        ("token-mean", "drop", -2 / 2),
        ("seq-mean-token-sum", "train", -(2 * 1 - 3 * 2) / 2),
        ("seq-mean-token-sum", "mask", -2 / 2),
        ("seq-mean-token-sum", "drop", -2 / 1),
    ],
)
def test_terms_and_denominators_with_a_pencil(aggregation: Any, method: Any, loss: float) -> None:
    request = Request("p", (1, 2), 0, 0)
    rollouts = [Rollout(request, [3] * size, [-1.0] * size, "", size == 3) for size in (2, 3)]
    experience = pad_rollouts(rollouts, 0, torch.device("cpu"))
    experience.credit(torch.tensor([[1.0], [-2.0]]))
    experience.leave_out(rollouts, method)
    responses, tokens = experience.counts(torch.arange(2))
    logp = experience.sampler_logp_NT
    batch = Batch(experience.mask_NT, experience.adv_NT, logp, responses=responses, tokens=tokens)
    assert surrogate(logp, batch, Objective(aggregation=aggregation)).loss.item() == pytest.approx(
        loss
    )


def test_a_mini_batch_of_truncated_responses_alone_has_no_loss() -> None:
    rollouts = [Rollout(Request("p", (1,), 0, 0), [3], [-1.0], "", True)]
    experience = pad_rollouts(rollouts, 0, torch.device("cpu"))
    experience.credit(torch.tensor([[1.0]]))
    experience.leave_out(rollouts, "drop")
    assert experience.counts(torch.arange(1)) == (1, 0)
    assert not experience.adv_NT.any()
