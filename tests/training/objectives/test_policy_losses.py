"""The family's losses against a table computed by hand, and their limiting cases.

Also what is measured of them.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from case_tables import cases
from measuring import LN, LOGP, MASK, batch_of, gradient, numbers
from pydantic import ValidationError
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.training.objectives import PRESETS, Batch, Objective, prepared, surrogate
from gspo_lab.training.objectives.losses import LOSSES, Common, loss_of
from gspo_lab.training.objectives.losses.clipping import Bapo
from gspo_lab.training.objectives.losses.covariances import ClipCov, KlCov
from gspo_lab.training.objectives.losses.weighing import Pspo, Sapo, Vespo
from gspo_lab.training.objectives.ratios import RATIOS

EXP = math.exp


def sigmoid(x: float) -> float:
    return 1 / (1 + EXP(-x))


PENCIL: list[tuple[str, JsonObject, float]] = [
    # The mean of response 0's terms, less response 1's, over 2 responses; ranges are 0.2 unless
    # said. DCPO at old probability 1: r between (1 + sqrt(1 - 0.8)) / 2 = 0.7236 and (1 + sqrt(1 +
    # 0.8)) / 2 = 1.1708.
    ("dcpo", {}, ((1 + math.sqrt(1.8)) / 2 + 1.0 + 0.5) / 3 - (1 + math.sqrt(0.2)) / 2),
    # GMPO: 1.5 becomes 1.2 and 0.5 of A < 0 becomes 0.8, then the geometric mean.
    ("gmpo", {"importance_sampling_level": "sequence"}, (1.2 * 1.0 * 0.5) ** (1 / 3) - 0.8),
    # FSPO: 0.75 lies within exp(-0.2 sqrt 3) = 0.707; 0.5 does not within exp(-0.2) = 0.819.
    ("fspo", {}, 0.75 - EXP(-0.2)),
    # CISPO: weights 1.2, 1.0, 0.8 and 0.8 of log pi.
    ("cispo", {}, (1.2 * LN(1.5) + 0.8 * LN(0.5)) / 3 - 0.8 * LN(0.5)),
    # without a lower bound: 0.5 stays
    ("cispo", {"clip_low": 1.0}, (1.2 * LN(1.5) + 0.5 * LN(0.5)) / 3 - 0.5 * LN(0.5)),
    ("reinforce", {}, (LN(1.5) + LN(0.5)) / 3 - LN(0.5)),
    # VESPO: W^2 exp(3 (1 - W)) at 0.75, W^3 exp(2 (1 - W)) at 0.5.
    ("vespo", {}, 0.75**2 * EXP(0.75) * LN(0.75) / 3 - 0.5**3 * EXP(1.0) * LN(0.5)),
    # SAPO: 4 sigmoid(r - 1) and (4 / 2) sigmoid(2 (r - 1)).
    (
        "sapo",
        {"sapo_tau_negative": 2.0},
        4 * (sigmoid(0.5) + 0.5 + sigmoid(-0.5)) / 3 - 2 * sigmoid(-1.0),
    ),
    # Centred A: .5 three times, -1.5; centred log pi: .651, .245, -.448, -.448. Covariances: .33,
    # .12, -.22, .67. Clip-Cov: the first and the last are clipped already; of the others the second
    # alone is above 0, and is left out.
    ("clip-cov", {"clip_cov_share": 1.0, "clip_cov_low": 0.0}, (1.2 + 0.5) / 3 - 0.8),
    # KL-Cov: one of four tokens, the last, loses |ln 0.5|. Nothing is clipped.
    ("kl-cov", {"kl_cov_share": 0.25}, (1.5 + 1.0 + 0.5) / 3 - 0.5 - LN(2)),
    # PSPO: 0.9 r + 0.1.
    ("pspo", {}, (1.45 + 1.0 + 0.55) / 3 - 0.55),
]


@pytest.mark.parametrize(("loss", "inputs", "objective"), PENCIL)
def test_pencil(loss: str, inputs: JsonObject, objective: float) -> None:
    settings = Objective(policy_loss=loss, clip_low=0.2, clip_high=0.2).replace(**inputs)
    out = surrogate(LOGP, batch_of(MASK, [1.0, -1.0]), settings)
    assert float(out.loss) == pytest.approx(-objective / 2, abs=1e-12)


# DPPO looks at probabilities: from 1/2 to 3/4 (w = 1.5), from 1/4 to 1/4, from 1/10 to 1/5 (w = 2),
# all with A = 1; response 1 from 1/2 to 1/4 (w = 0.5) with A = -1. The first rose by 1/4 and the
# last fell by 1/4.
OLD = torch.tensor([[LN(0.5), LN(0.25), LN(0.1)], [LN(0.5), 0.0, 0.0]], dtype=torch.float64)
NEW = torch.tensor([[LN(0.75), LN(0.25), LN(0.2)], [LN(0.25), 0.0, 0.0]], dtype=torch.float64)
KL_FIRST = 0.5 * LN(0.5 / 0.75) + 0.5 * LN(0.5 / 0.25)  # 0.1438
KL_THIRD = 0.1 * LN(0.1 / 0.2) + 0.9 * LN(0.9 / 0.8)  # 0.0367
KL_LAST = 0.5 * LN(0.5 / 0.25) + 0.5 * LN(0.5 / 0.75)  # 0.1438


@pytest.mark.parametrize(
    ("loss", "bound", "retained"),
    cases(__file__, "dppo_drops_what_moved_too_far_along_its_advantage"),
)
def test_dppo_drops_what_moved_too_far_along_its_advantage(
    loss: str, bound: float, retained: list[int]
) -> None:
    assert pytest.approx(0.1438, abs=1e-4) == KL_FIRST == pytest.approx(KL_LAST)
    assert pytest.approx(0.0367, abs=1e-4) == KL_THIRD
    settings = Objective(policy_loss=loss, clip_low=bound, clip_high=bound)
    out = surrogate(NEW, batch_of(MASK, [1.0, -1.0], OLD), settings)
    terms = [
        keep * term
        for keep, term in zip(
            retained, (1.5 * LN(0.75), LN(0.25), 2 * LN(0.2), 0.5 * LN(0.25)), strict=True
        )
    ]
    assert float(out.loss) == pytest.approx(-(sum(terms[:3]) / 3 - terms[3]) / 2, abs=1e-6)
    assert out.clipped_BT[torch.tensor(MASK, dtype=torch.bool)].tolist() == [
        not keep for keep in retained
    ]
    # The other way round nothing is dropped: what moved against its advantage may come back.
    assert not surrogate(NEW, batch_of(MASK, [-1.0, 1.0], OLD), settings).clipped_BT.any()


def test_which_tokens_a_clip_takes() -> None:
    batch = batch_of(MASK, [1.0, -1.0])
    for loss, start, later in (
        ("gmpo", [1, 0, 0], 1),
        ("dcpo", [1, 0, 0], 1),
        ("fspo", [0, 0, 0], 1),
    ):
        settings = Objective(policy_loss=loss, clip_low=0.2, clip_high=0.2)
        out, grad_BT = gradient(settings, batch, LOGP)
        assert out.clipped_BT.int().tolist() == [start, [later, 0, 0]], loss
        assert ((grad_BT == 0) == (out.clipped_BT | ~batch.mask_BT)).all(), loss


def random_batch(seed: int, spread: float = 0.3) -> tuple[Batch, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([1, 2, 3, 5, 5, 4])
    mask_BT = torch.arange(5)[None] < lengths[:, None]
    adv_BT = torch.tensor([1.2, -0.7, 0.5, -1.0, 0.8, 0.0], dtype=torch.float64)[:, None] * mask_BT
    old_BT = -torch.rand(6, 5, generator=generator, dtype=torch.float64) * mask_BT
    logp_BT = (
        old_BT + spread * torch.randn(6, 5, generator=generator, dtype=torch.float64) * mask_BT
    )
    return Batch(mask_BT, adv_BT, old_BT, 6, int(mask_BT.sum())), logp_BT


FREE = Objective(clip_low=0.999, clip_high=1e6)
"""The ratio alone: nothing binds."""
REINFORCE = Objective(policy_loss="reinforce")
SUMMED = FREE.replace(aggregation="seq-mean-token-sum")

LIMITS = [
    # the setting that makes it another objective, and that objective; gradients are compared
    (
        "cispo between 1 and 1 is REINFORCE",
        Objective(policy_loss="cispo").replace(clip_low=0, clip_high=0),
        REINFORCE,
    ),
    (
        "cispo without bounds is the ratio alone",
        Objective(policy_loss="cispo", clip_low=1, clip_high=1e6),
        FREE,
    ),
    (
        "dppo without bounds is the ratio alone",
        Objective(policy_loss="dppo-tv", clip_low=1, clip_high=1),
        FREE,
    ),
    (
        "dcpo without bounds is the ratio alone",
        Objective(policy_loss="dcpo", clip_low=0.99, clip_high=1e6),
        FREE,
    ),
    (
        "sapo's gate opens as tau goes to 0",
        Sapo(policy_loss="sapo", sapo_tau_positive=1e-5, sapo_tau_negative=1e-5),
        FREE,
    ),
    (
        "clip-cov without candidates is the clip",
        ClipCov(
            policy_loss="clip-cov",
            clip_low=0.2,
            clip_high=0.27,
            clip_cov_low=1e6,
            clip_cov_high=1e7,
        ),
        PRESETS["grpo"],
    ),
    (
        "kl-cov without a penalty is the ratio alone",
        KlCov(policy_loss="kl-cov", kl_cov_coef=0.0),
        FREE,
    ),
    (
        "pspo without smoothing is the ratio alone",
        Pspo(policy_loss="pspo", pspo_smoothing=0.0),
        FREE,
    ),
    (
        "gmpo without a clip is GSPO without one",
        Objective(
            policy_loss="gmpo", importance_sampling_level="sequence", clip_low=0.999, clip_high=1e6
        ),
        FREE.replace(importance_sampling_level="sequence"),
    ),
    (
        "minirl with equal samplers is GRPO, summed",
        PRESETS["minirl"],
        PRESETS["grpo"].replace(aggregation="seq-mean-token-sum"),
    ),
    (
        "dapo is GRPO with another mean",
        PRESETS["dapo"],
        PRESETS["grpo"].replace(clip_high=0.28, aggregation="token-mean"),
    ),
]


@pytest.mark.parametrize(
    ("settings", "other"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS]
)
def test_limiting_cases(settings: Common, other: Common) -> None:
    batch, logp_BT = random_batch(3)
    batch = replace(batch, sampler_logp_BT=batch.old_logp_BT)
    lab = gradient(settings, batch, logp_BT)[1]
    peer = gradient(other, batch, logp_BT)[1]
    assert torch.linalg.norm(peer) > 0.1
    assert torch.linalg.norm(lab - peer) <= 2e-5 * torch.linalg.norm(peer)


def test_luspo_is_gspo_times_the_length_and_one_token_makes_fspo_grpo() -> None:
    batch, logp_BT = random_batch(4)
    length_B1 = batch.mask_BT.sum(dim=1, keepdim=True)
    luspo = PRESETS["luspo"]
    plain = gradient(luspo.replace(aggregation="seq-mean-token-mean"), batch, logp_BT)[1]
    assert torch.allclose(gradient(luspo, batch, logp_BT)[1], length_B1 * plain)
    assert torch.linalg.norm(plain) > 0

    mask_BT = torch.ones(6, 1, dtype=torch.bool)
    item = Batch(mask_BT, batch.adv_BT[:, :1], batch.old_logp_BT[:, :1], 6, 6)
    logp_B1 = (
        item.old_logp_BT
        + torch.tensor([0.5, -0.5, 0.1, 0.1, -0.3, 0.2], dtype=torch.float64)[:, None]
    )
    fspo = Objective(
        policy_loss="fspo", importance_sampling_level="sequence", clip_low=0.2, clip_high=0.2
    )
    grpo = Objective(clip_low=-math.expm1(-0.2), clip_high=math.expm1(0.2))
    a = surrogate(logp_B1, item, fspo)
    b = surrogate(logp_B1, item, grpo)
    assert float(a.loss) == pytest.approx(float(b.loss), abs=1e-12)
    assert torch.equal(a.clipped_BT, b.clipped_BT)
    assert a.clipped_BT.int()[:, 0].tolist() == [1, 1, 0, 0, 0, 0]


def test_vespo_at_k_1_and_lambda_0_weighs_by_the_whole_ratio() -> None:
    batch, logp_BT = random_batch(5)
    settings = Vespo(policy_loss="vespo", vespo_k_positive=1.0, vespo_k_negative=1.0).replace(
        vespo_lambda_positive=0.0, vespo_lambda_negative=0.0
    )
    grad_BT = gradient(settings, batch, logp_BT)[1]
    whole_B1 = ((logp_BT - batch.old_logp_BT) * batch.mask_BT).sum(dim=1, keepdim=True).exp()
    length_B1 = batch.mask_BT.sum(dim=1, keepdim=True)
    assert torch.allclose(grad_BT, -whole_B1 * batch.adv_BT / length_B1 / 6)


@pytest.mark.parametrize("loss", LOSSES)
def test_before_the_policy_moves_every_loss_is_reinforce(loss: str) -> None:
    """All ratios are 1: the gradient is A / L, but for PSPO's factor and FSPO's sum."""
    batch, _ = random_batch(6)
    expected_BT = gradient(REINFORCE, batch, batch.old_logp_BT)[1]
    assert torch.allclose(
        expected_BT, -batch.adv_BT / batch.mask_BT.sum(dim=1, keepdim=True) / batch.responses
    )
    for level in RATIOS:
        settings = Objective(
            policy_loss=loss, clip_low=0.2, clip_high=0.2, importance_sampling_level=level
        )
        out, grad_BT = gradient(settings, batch, batch.old_logp_BT)
        factor: Any = {"pspo": 0.9, "fspo": batch.mask_BT.sum(dim=1, keepdim=True)}.get(loss, 1.0)
        assert torch.allclose(grad_BT, factor * expected_BT)
        assert not out.clipped_BT.any()
        assert (out.ratio_BT == 1).all()
        assert ("gate_mean" in out.metrics) is not bool(LOSSES[loss].clips), "who clips has no gate"


@pytest.mark.parametrize("preset", PRESETS)
def test_padding_extremes_and_parts(preset: str) -> None:
    """Places off the mask, ratios beyond any float and a cut into parts change nothing.

    The places are within responses. Nothing breaks either.
    """
    settings = PRESETS[preset]
    batch, logp_BT = random_batch(7)
    batch = replace(batch, sampler_logp_BT=batch.old_logp_BT)
    out, grad_BT = gradient(settings, batch, logp_BT)

    def cut(x_BT: Tensor, fill: float) -> Tensor:
        return torch.cat([x_BT[:, :1], torch.full_like(x_BT[:, :2], fill), x_BT[:, 1:]], dim=1)

    old_BT = cut(batch.old_logp_BT, 0.0)
    padded = Batch(
        *(cut(batch.mask_BT, False), cut(batch.adv_BT, 0.0), old_BT),
        batch.responses,
        batch.tokens,
        sampler_logp_BT=old_BT,
    )
    again, wide_BT = gradient(settings, padded, cut(logp_BT, math.nan))
    assert float(again.loss.detach()) == pytest.approx(float(out.loss.detach()), rel=1e-12)
    assert torch.allclose(wide_BT[:, [0, 3, 4, 5, 6]], grad_BT)
    assert not wide_BT[:, 1:3].any()

    _, selected_BT = prepared(logp_BT, batch, settings, LOSSES[settings.policy_loss])
    halves = []
    for rows in (slice(0, 3), slice(3, 6)):
        names = ("mask_BT", "adv_BT", "old_logp_BT", "sampler_logp_BT")
        part = replace(batch, **{name: getattr(batch, name)[rows] for name in names})
        part = part if selected_BT is None else replace(part, selected_BT=selected_BT[rows])
        halves.append(gradient(settings, part, logp_BT[rows]))
    assert sum(float(half.loss.detach()) for half, _ in halves) == pytest.approx(
        float(out.loss.detach()), rel=1e-9
    )
    assert torch.allclose(torch.cat([part_BT for _, part_BT in halves]), grad_BT)

    for shift in (30.0, 45.0, 60.0, 200.0, -200.0):
        far_out, far_BT = gradient(settings, batch, (logp_BT.float() + shift) * batch.mask_BT)
        assert far_BT.norm().isfinite(), "the update would be skipped"
        assert far_out.loss.isfinite()


def measured(settings: Common) -> JsonObject:
    batch = batch_of(MASK, [1.0, -1.0])
    everyone = torch.ones(2, dtype=torch.bool)
    return numbers(LOGP, batch.mask_BT, batch.adv_BT, everyone, settings, {"grpo": (0.2, 0.2)})


def test_a_loss_without_a_clip_has_no_clip_fraction_but_a_gate() -> None:
    """SAPO's gate at tau 1 is sech^2((w - 1) / 2): .9406 at 1.5 and at 0.5, 1 at 1."""
    actual = measured(Sapo(policy_loss="sapo", sapo_tau_negative=1.0))
    gate = 1 / math.cosh(0.25) ** 2
    assert actual["gate_mean"] == pytest.approx((gate + 1 + gate + gate) / 4)
    assert not [name for name in actual if name.startswith("clip") and actual[name] is not None]
    assert_fields(actual, would_clip_fraction_tokens_grpo=0.5, effective_fraction_tokens=1.0)
    # CISPO's: 1.2 / 1.5, 1, 0.8 / 0.5, 0.8 / 0.5.
    actual = measured(Objective(policy_loss="cispo", clip_low=0.2, clip_high=0.2))
    assert actual["gate_mean"] == pytest.approx((0.8 + 1 + 1.6 + 1.6) / 4)


def test_a_loss_with_a_clip_has_a_clip_fraction_and_no_gate() -> None:
    actual = measured(Objective(policy_loss="gmpo", clip_low=0.2, clip_high=0.2))
    assert_fields(
        actual,
        gate_mean=None,
        clipped_tokens=2,
        clip_fraction_tokens_high=0.25,
        clip_fraction_tokens_low=0.25,
        effective_fraction_tokens=0.5,
    )


def test_a_long_answer_s_whole_ratio_breaks_no_update() -> None:
    """5,000 tokens that each rose by 0.01 make W = e^50.

    Its gradient's square is beyond float32.
    """
    mask_BT = torch.ones(1, 5000, dtype=torch.bool)
    batch = Batch(mask_BT, -mask_BT.float(), torch.full((1, 5000), -1.0), 1, 5000)
    for preset in ("fspo", "gspo", "vespo"):
        assert gradient(PRESETS[preset], batch, torch.full((1, 5000), -0.99))[1].norm().isfinite()


def test_dcpo_s_upper_bound_ends_at_ten() -> None:
    """At an old probability of e^-12 the formula alone would give 181.

    .5 + .5 sqrt(1 + .8 e^12) = 181.
    """
    batch = batch_of([[1]], [1.0], torch.tensor([[-12.0]], dtype=torch.float64))
    out = surrogate(torch.tensor([[-12.0 + LN(50)]], dtype=torch.float64), batch, PRESETS["dcpo"])
    assert float(out.loss) == pytest.approx(-10.0)


MINE = '''
from pydantic import Field
from gspo_lab.training.objectives.losses import Common, Loss, LossInputs, weighted


class Mine(Common):
    power: float = Field(1.0, ge=0)


def term(inputs: LossInputs, settings: Mine):
    """sg(r^power) A log pi."""
    return weighted(inputs, inputs.ratio_BT.detach() ** settings.power)


LOSS = Loss(name="mine", source="mine", formula="", term=term, settings=Mine, clips=None, reads_range=False)
OTHER = 3
'''  # noqa: E501


def named(folder: Path, attribute: str = "LOSS", **options: Any) -> Objective:
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    return Objective(policy_loss=f"mine.py:{attribute}", loss_options=options)


def test_it_is_found_and_reads_its_own_settings(tmp_path: Path) -> None:
    """With power 0 it is REINFORCE: the gradient of one token of two is -A / 2.

    With power 2 it is r^2 times that.
    """
    batch = batch_of([[1, 1]], [1.0])
    for power, factor in ((0.0, 1.0), (2.0, 4.0)):
        loss, settings = loss_of(named(tmp_path, power=power), tmp_path)
        _, grad_BT = gradient(settings, batch, torch.full((1, 2), LN(2), dtype=torch.float64), loss)
        assert grad_BT.tolist() == [[pytest.approx(-factor / 2)] * 2]


def test_an_installed_package_adds_a_loss_by_an_entry_point(
    tmp_path: Path, add_entry_points: Callable[[str], None]
) -> None:
    (tmp_path / "losses_of_theirs.py").write_text(MINE, encoding="utf-8")
    add_entry_points(
        "[gspo_lab.losses]\ntheirs = losses_of_theirs:LOSS\nsapo = losses_of_theirs:LOSS\n"
    )
    loss, settings = loss_of(Objective(policy_loss="theirs", loss_options={"power": 2.0}), tmp_path)
    assert (loss.name, settings.model_dump()["power"]) == ("mine", 2.0)
    assert Objective(policy_loss="sapo").loss is LOSSES["sapo"], "the lab's own names stay"
    with pytest.raises(ValidationError, match=r"did you mean 'theirs'"):
        Objective(policy_loss="thiers")


def test_what_is_none_or_does_not_fit_is_told(tmp_path: Path) -> None:
    with lab_error(
        r"'mine\.py:OTHER' is int; it must be a gspo_lab\.training\.objectives\.losses\.Loss",
    ):
        loss_of(named(tmp_path, "OTHER"), tmp_path)
    with lab_error(
        r"objective\.loss_options\.power: Input should be greater than or equal to 0",
    ):
        loss_of(named(tmp_path, power=-1.0), tmp_path)
    with lab_error(
        r"loss_options\.pwer: unknown key \(did you mean 'power'\?\); .* reads power",
    ):
        loss_of(named(tmp_path, pwer=1.0), tmp_path)


def test_a_lab_s_loss_needs_no_file(tmp_path: Path) -> None:
    objective = Objective(policy_loss="sapo")
    assert loss_of(objective, tmp_path) == (LOSSES["sapo"], objective)


def test_an_unknown_loss_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ValidationError, match=r"must be one of bapo, .* or 'file\.py:LOSS'.*'sapo'"
    ):
        Objective(policy_loss="spao")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Vespo(policy_loss="vespo"), None),
        (
            Vespo(policy_loss="vespo", mismatch_correction="tis"),
            "mismatch_correction = 'tis' with policy_loss = 'vespo'",
        ),
        (Bapo(policy_loss="bapo"), None),
        (
            Bapo(policy_loss="bapo", bapo_clip_low=0.3),
            "bapo_clip_low = 0.3, bapo_clip_high = 2: bounds move up",
        ),
    ],
)
def test_a_loss_refuses_settings_that_cannot_be_together(
    settings: Common, reason: OptionalText
) -> None:
    reasons = list(LOSSES[settings.policy_loss].refuses(settings))
    assert len(reasons) == (reason is not None)
    assert all(line.startswith(str(reason)) for line in reasons)
