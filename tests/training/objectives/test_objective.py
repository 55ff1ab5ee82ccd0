"""The objectives against tables that can be checked with a pencil, and against each other."""

import math
from dataclasses import replace

import pytest
import torch
from assertions import assert_fields
from case_tables import cases
from measuring import LN, LOGP, MASK, batch_of, gradient, numbers
from torch import Tensor

from gspo_lab.training.objectives import PRESETS, Batch, mismatch_measures, surrogate
from gspo_lab.training.objectives.losses import LOSSES
from gspo_lab.training.objectives.objective import mismatch_weight
from gspo_lab.training.objectives.presets import with_published_range
from gspo_lab.training.objectives.ratios import Level
from gspo_lab.training.objectives.settings import Aggregation, Correction

GRPO = PRESETS["grpo"]
GSPO = PRESETS["gspo"]
GSPO_TOKEN = PRESETS["gspo-token"]


WIDE = GRPO.replace(clip_low=0.2, clip_high=0.2)

PENCIL = [
    # GRPO clips 1.5 to 1.2 (A > 0) and 0.5 up to 0.8 (A < 0, response 1); 0.5 at A > 0 stays.
    #   terms 1.2, 1.0, 0.5 (sum 2.7, mean 0.9) and -0.8
    ("token", "seq-mean-token-mean", -(0.9 - 0.8) / 2),
    ("token", "token-mean", -(2.7 - 0.8) / 4),
    ("token", "seq-mean-token-sum", -(2.7 - 0.8) / 2),
    ("token", "constant", -(2.7 - 0.8) / (2 * 10)),
    # GSPO: 0.75^(1/3) = 0.9086 lies inside; 0.5 is clipped up to 0.8. The sequence's term counts
    # once per token.
    ("sequence", "seq-mean-token-mean", -(0.75 ** (1 / 3) - 0.8) / 2),
    ("sequence", "token-mean", -(3 * 0.75 ** (1 / 3) - 0.8) / 4),
    ("sequence", "seq-mean-token-sum", -(3 * 0.75 ** (1 / 3) - 0.8) / 2),
    ("sequence", "constant", -(3 * 0.75 ** (1 / 3) - 0.8) / (2 * 10)),
]


@pytest.mark.parametrize(("level", "aggregation", "loss"), PENCIL)
def test_pencil(level: Level, aggregation: Aggregation, loss: float) -> None:
    settings = WIDE.replace(
        importance_sampling_level=level, aggregation=aggregation, aggregation_constant=10.0
    )
    out = surrogate(LOGP, batch_of(MASK, [1.0, -1.0]), settings)
    assert float(out.loss) == pytest.approx(loss, abs=1e-12)


@pytest.mark.parametrize(
    "aggregation", ["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant"]
)
def test_gspo_token_has_gspo_value_clip_and_gradient(aggregation: Aggregation) -> None:
    torch.manual_seed(3)
    batch, logp = random_batch()
    (a, grad_a) = gradient(GSPO.replace(aggregation=aggregation), batch, logp)
    (b, grad_b) = gradient(GSPO_TOKEN.replace(aggregation=aggregation), batch, logp)
    assert float(a.loss.detach()) == pytest.approx(float(b.loss.detach()), rel=1e-6)
    assert torch.linalg.norm(grad_a - grad_b) <= 1e-6 * torch.linalg.norm(grad_a)
    assert torch.linalg.norm(grad_a) > 0
    assert torch.equal(a.clipped_BT, b.clipped_BT)
    assert a.clipped_BT.any()


def test_one_token_responses_make_gspo_and_grpo_equal() -> None:
    torch.manual_seed(6)
    logp = torch.randn(8, 1, dtype=torch.float64) * 0.3
    batch = batch_of([[1]] * 8, torch.randn(8).tolist())
    same = [surrogate(logp, batch, s.replace(clip_low=0.1, clip_high=0.1)) for s in (GRPO, GSPO)]
    assert float(same[0].loss) == pytest.approx(float(same[1].loss), abs=1e-15)
    assert torch.equal(same[0].clipped_BT, same[1].clipped_BT)
    assert same[0].clipped_BT.any()


def test_dual_clip_caps_the_loss_and_takes_the_gradient() -> None:
    # w = 5 with A = -2: min gives -10, a dual clip at 3 gives -6 and no gradient; with A = +2 it
    # does nothing.
    for adv, loss, capped in ((-2.0, 6.0, True), (2.0, -2.54, False)):
        logp_BT = torch.tensor([[LN(5.0)]], dtype=torch.float64)
        out, grad_BT = gradient(GRPO.replace(dual_clip=3.0), batch_of([[1]], [adv]), logp_BT)
        assert float(out.loss.detach()) == pytest.approx(loss)
        assert float(grad_BT) == 0.0
        assert bool(out.metrics["dual_clip_fraction_tokens"]) is capped
        assert bool(out.clipped_BT) is not capped


def test_an_overflowing_ratio_at_zero_advantage_adds_nothing() -> None:
    logp_BT = torch.tensor([[2000.0, 0.0], [0.1, 0.1]], dtype=torch.float64)
    out, grad_BT = gradient(GRPO, batch_of([[1, 1], [1, 1]], [0.0, 1.0]), logp_BT)
    assert torch.isfinite(out.loss.detach())
    assert grad_BT[0].tolist() == [0.0, 0.0]
    assert grad_BT[1].abs().sum() > 0


@pytest.mark.parametrize("level", ["token", "sequence", "sequence-token"])
def test_an_overflowing_ratio_whose_clip_binds_has_no_gradient(level: Level) -> None:
    # e^200 is infinite in float32; A > 0 clips it to 1.27, so the loss is finite and the gradient
    # 0, not NaN.
    batch = Batch(
        torch.ones(1, 2, dtype=torch.bool),
        torch.ones(1, 2),
        torch.zeros(1, 2),
        responses=1,
        tokens=2,
    )
    settings = GRPO.replace(importance_sampling_level=level)
    out, grad_BT = gradient(settings, batch, torch.tensor([[200.0, 200.0]]))
    assert float(out.loss.detach()) == pytest.approx(-1.27)
    assert grad_BT.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("nats", [LN(2.0), 0.01, -0.5, 1.0, 10.0, 39.0, 89.0, 500.0])
def test_the_kl_term_is_k3_with_its_gradient_and_finite_in_single_precision(nats: float) -> None:
    """exp(d) - d - 1 on one of two tokens, aggregated like the rest.

    Its gradient is 1 - exp(d) by log pi. exp(89) is infinite in float32: behind 40 nats k3 is its
    tangent there, which grows by e^40 - 1 a nat.
    """
    mask_BT = torch.ones(1, 2, dtype=torch.bool)
    adv_BT = torch.zeros(1, 2)
    batch = Batch(mask_BT, adv_BT, adv_BT, 1, 2, ref_logp_BT=torch.tensor([[nats, 0.0]]))
    out, grad_BT = gradient(GRPO.replace(kl_coef=0.5), batch, torch.zeros(1, 2))
    near = min(nats, 40.0)
    value = math.exp(near) - near - 1 + (nats - near) * math.expm1(40)
    assert float(out.metrics["kl"]) == pytest.approx(value, rel=1e-5, abs=1e-7)
    assert float(out.loss.detach()) == pytest.approx(0.5 * value / 2, rel=1e-5, abs=1e-7)
    assert grad_BT[0].tolist() == pytest.approx([-0.5 * math.expm1(near) / 2, 0.0], rel=1e-5)
    assert grad_BT.norm().isfinite()


def test_a_response_without_tokens_counts_as_one_with_term_zero() -> None:
    batch = batch_of([[1, 1], [0, 0]], [1.0, 1.0])
    assert float(
        surrogate(torch.zeros(2, 2, dtype=torch.float64), batch, GSPO).loss
    ) == pytest.approx(-0.5)


def random_batch(lengths: list[int] | None = None) -> tuple[Batch, Tensor]:
    lengths = lengths or [1, 2, 3, 5, 5, 4]
    mask = [[int(t < n) for t in range(max(lengths))] for n in lengths]
    old = torch.randn(len(lengths), max(lengths), dtype=torch.float64) * torch.tensor(mask)
    batch = batch_of(mask, torch.randn(len(lengths)).tolist(), old)
    return batch, old + 0.2 * torch.randn_like(old)


TOKENS = torch.tensor([[1, 1, 1], [1, 1, 0]], dtype=torch.bool)
# k = 4, 1/4, 1 (product 1, geometric mean 1) and 1.5, 1.5 (product 2.25, geometric mean 1.5)
MISMATCH = torch.tensor([[LN(4), LN(0.25), 0.0], [LN(1.5), LN(1.5), 0.0]], dtype=torch.float64)
SIGNS = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) * TOKENS


def two_responses() -> Batch:
    sampler_BT = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -1.5, 0.0]], dtype=torch.float64)
    return Batch(TOKENS, SIGNS, (sampler_BT + MISMATCH) * TOKENS, 2, 5, sampler_logp_BT=sampler_BT)


@pytest.mark.parametrize(
    ("correction", "bounds", "weights"),
    cases(__file__, "weights"),
)
def test_weights(
    correction: Correction, bounds: dict[str, float], weights: list[list[float]]
) -> None:
    settings = PRESETS["grpo"].replace(mismatch_correction=correction, **bounds)
    actual = mismatch_weight(two_responses(), settings)
    assert actual.shape == TOKENS.shape
    assert actual[TOKENS].tolist() == pytest.approx(
        torch.tensor(weights, dtype=torch.float64)[TOKENS].tolist()
    )
    assert not actual.requires_grad


@pytest.mark.parametrize("level", ["token", "sequence", "sequence-token"])
def test_the_weight_multiplies_the_terms_and_their_gradient_but_no_kl(level: Level) -> None:
    settings = PRESETS["grpo"].replace(
        importance_sampling_level=level, aggregation="token-mean", kl_coef=0.1
    )
    corrected = settings.replace(
        mismatch_correction="sequence-mask", mismatch_low=0.0, mismatch_high=2.0
    )
    data = replace(two_responses(), ref_logp_BT=torch.zeros(2, 3, dtype=torch.float64))
    silent = replace(data, adv_BT=torch.zeros_like(data.adv_BT))
    plain, plain_grad = gradient(settings, data, data.old_logp_BT)
    masked, masked_grad = gradient(corrected, data, data.old_logp_BT)
    # All ratios are 1: the terms are A, 3 tokens of +1 and 2 of -1, of which the mask takes the
    # latter two away.
    assert float(masked.loss.detach()) - float(plain.loss.detach()) == pytest.approx(-2 / 5)
    assert torch.allclose(masked_grad[0], plain_grad[0])
    of_kl = PRESETS["grpo"].replace(aggregation="token-mean", kl_coef=0.1)
    assert torch.allclose(masked_grad[1], gradient(of_kl, silent, data.old_logp_BT)[1][1])
    assert masked.metrics["kl"] == plain.metrics["kl"]


def test_measures() -> None:
    out = mismatch_measures(MISMATCH, TOKENS)
    tokens = [LN(4), -LN(4), 0.0, LN(1.5), LN(1.5)]
    mean = sum(tokens) / 5
    assert_fields(
        out,
        mismatch_k1=pytest.approx(-mean),
        mismatch_k3=pytest.approx((4 + 0.25 + 1 + 1.5 + 1.5) / 5 - 1 - mean),
        mismatch_abs_max=pytest.approx(LN(4)),
        mismatch_outside_2=pytest.approx(2 / 5),
    )
    sd = math.sqrt(sum(x * x for x in tokens) / 5 - mean**2)
    assert_fields(
        out,
        mismatch_std_tokens=pytest.approx(sd),
        # Means of the responses: 0 and ln 1.5
        mismatch_std_responses=pytest.approx(LN(1.5) / 2),
        mismatch_abs_max_responses=pytest.approx(LN(1.5)),
        mismatch_std_independent=pytest.approx(sd * math.sqrt((1 / 3 + 1 / 2) / 2)),
        # Products 1 and 2.25
        mismatch_outside_2_responses=0.5,
    )
    assert mismatch_measures(MISMATCH, TOKENS & False) == {}


def test_independent_tokens_spread_as_said() -> None:
    torch.manual_seed(0)
    mask = torch.arange(40) < torch.randint(5, 41, (4000, 1))
    out = mismatch_measures(0.01 * torch.randn(mask.shape, dtype=torch.float64) * mask, mask)
    assert out["mismatch_std_responses"] == pytest.approx(out["mismatch_std_independent"], rel=0.05)


def test_flips_are_the_tokens_that_one_program_alone_clips() -> None:
    # Against the trainer nothing has moved; against the sampler 4 > 1.27 at A > 0 and nothing < .8
    # at A < 0; the sequences' ratios are 1 and 1.5, of which the second is no move against A < 0.
    bands = {"grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)}
    everyone = torch.ones(2, dtype=torch.bool)
    still = torch.zeros_like(MISMATCH)
    for native, other in ((still, MISMATCH), (MISMATCH, still)):
        out = numbers(
            native, TOKENS, SIGNS, everyone, PRESETS["grpo"], bands, other_log_ratio_BT=other
        )
        assert_fields(
            out, flip_fraction_tokens_grpo=pytest.approx(1 / 5), flip_fraction_tokens_gspo=0.0
        )
        out = numbers(
            native, TOKENS, -SIGNS, everyone, PRESETS["grpo"], bands, other_log_ratio_BT=other
        )
        # Signs turned: 1/4 < .8 at A < 0, 1.5 twice at A > 0; the second response whole.
        assert_fields(
            out,
            flip_fraction_tokens_grpo=pytest.approx(3 / 5),
            flip_fraction_tokens_gspo=pytest.approx(2 / 5),
        )
    out = numbers(MISMATCH, TOKENS, SIGNS, everyone, PRESETS["grpo"], bands)
    assert out["flip_fraction_tokens_grpo"] is None


def test_clips_by_the_sign_of_the_advantage_and_what_a_correction_leaves() -> None:
    weight_BT = torch.tensor([[1.0, 0.0, 1.0], [0.5, 0.5, 1.0]])
    metrics = {
        "clip_fraction_tokens": TOKENS & (SIGNS > 0) & (MISMATCH.exp() > 1.27),
        "correction_weight_mean": weight_BT,
        "correction_masked_tokens": weight_BT == 0,
    }
    everyone = torch.ones(2, dtype=torch.bool)
    out = numbers(MISMATCH, TOKENS, SIGNS, everyone, PRESETS["grpo"], {}, metrics)
    assert_fields(
        out,
        clip_fraction_positive_tokens=pytest.approx(1 / 3),
        clip_fraction_negative_tokens=0.0,
        correction_weight_mean=pytest.approx((1 + 0 + 1 + 0.5 + 0.5) / 5),
        correction_masked_tokens=pytest.approx(1 / 5),
        # Of five active tokens one is clipped, another one masked.
        effective_fraction_tokens=pytest.approx(3 / 5),
    )


def test_gspo_token_differs_when_advantages_vary_within_a_response() -> None:
    torch.manual_seed(4)
    batch, logp = random_batch()
    batch = replace(batch, adv_BT=batch.adv_BT * torch.rand_like(batch.adv_BT))
    complete = gradient(GSPO.replace(clip_low=0.9, clip_high=9.0), batch, logp)[1]
    native = gradient(GSPO_TOKEN.replace(clip_low=0.9, clip_high=9.0), batch, logp)[1]
    assert torch.linalg.norm(complete - native) > 0.05 * torch.linalg.norm(complete)


@pytest.mark.parametrize(
    ("preset", "level", "low", "high"),
    [
        ("grpo", "token", 0.2, 0.27),  # arXiv 2507.18071 v2, section 5.1
        ("gspo", "sequence", 3e-4, 4e-4),
        ("gspo-token", "sequence-token", 3e-4, 4e-4),
    ],
)
def test_a_preset_gives_the_paper_s_values(
    preset: str, level: Level, low: float, high: float
) -> None:
    actual = PRESETS[preset]
    assert_fields(
        actual,
        importance_sampling_level=level,
        clip_low=low,
        clip_high=high,
        clip="fixed",
        aggregation="seq-mean-token-mean",
        advantage="group-mean-std",
        dual_clip=None,
        kl_coef=0.0,
        regularised=False,
    )
    assert actual.replace(kl_coef=0.1).regularised
    assert actual.replace(entropy_coef=0.1).regularised


@pytest.mark.parametrize(
    ("correction", "low", "high"),
    [
        ("tis", 0.0, 2.0),
        ("icepop", 0.5, 5.0),
        ("sequence-mask", 0.0, 2.0),
        ("geometric-mask", 0.999, 1.001),
    ],
)
def test_a_correction_has_its_published_range_where_none_is_stated(
    correction: str, low: float, high: float
) -> None:
    unset = {"mismatch_correction": correction, "mismatch_low": None, "mismatch_high": None}
    assert with_published_range(unset) == {**unset, "mismatch_low": low, "mismatch_high": high}
    assert with_published_range({**unset, "mismatch_high": 7.0})["mismatch_high"] == 7.0
    none = {**unset, "mismatch_correction": "none"}
    assert with_published_range(none) == none


def test_which_losses_see_a_whole_mini_batch_first() -> None:
    assert {name for name, loss in LOSSES.items() if loss.sees_whole} == {
        "bapo",
        "clip-cov",
        "kl-cov",
    }
