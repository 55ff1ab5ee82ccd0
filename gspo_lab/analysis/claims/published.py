"""What is published beside the claims: evidence against them, statements that no study tests."""

from collections.abc import Mapping

from gspo_lab.analysis.claims.claim import CounterEvidence

OUTLIERS_CLIP_RESPONSES = CounterEvidence(
    "With a narrow range on the mean log-prob, a few outlying tokens clip a whole response",
    "SAPO, 2511.20347",
)
TOO_TIGHT = CounterEvidence(
    "A range as small as the paper's works badly on a dense 8B model; from 1e-3 on the choice no"
    " longer matters",
    "ScaleRL, 2510.13786",
)
DENSE_EQUAL = CounterEvidence(
    "Dense model, short answers, 4 mini-batches: equal test scores, GRPO slightly faster",
    "verl-project/verl#2775",
)
SHORT_RANGE = CounterEvidence(
    "A sequence range calibrated to short responses gives far smaller ratios, because the ranges'"
    " levels set the gap",
    "derived from sigma_seq = sigma_tok / sqrt(L)",
)
SMALL_CASE = CounterEvidence(
    "Nearly all results on mixtures have one seed. At 1 to 5 M parameters the contrast of replay is"
    " unpublished",
    "survey of the sources; R3's reviews",
)
NUMERICS = CounterEvidence(
    "In FP16 the mismatch goes away on a dense 1.5B model and all algorithms end alike, near 99 %",
    "2510.26788",
)
REPLAY_HELPS_GSPO = CounterEvidence(
    "8 mini-batches: GRPO 48.84 (crash), GSPO 66.76, GRPO + R3 68.05, GSPO + R3 69.00. GSPO needs"
    " no replay for stability, and still gains points by it",
    "R3, 2510.11370",
)
BOTH_COLLAPSE = CounterEvidence(
    "In the GSPO paper's own setting GSPO and GRPO with replay both collapse early",
    "SAPO, 2511.20347",
)
GRPO_WITH_REPLAY_WINS = CounterEvidence(
    "GSPO 35.76 ends below GRPO with R2, 37.55", "PR2, 2606.00395"
)
NARROW_RANGE = CounterEvidence(
    "The mismatch is wider than GSPO's range. So before any update responses may lie outside it",
    "derived from the recorded mismatch of a mixture, 1.5e-3 nats (2510.11370), against 3e-4",
)
DIVERGED = CounterEvidence(
    "GSPO diverged in the middle of several large runs, and on Scout it did not recover. CISPO ends"
    " slightly above it",
    "ScaleRL, 2510.13786",
)
ABOVE_DAPO = CounterEvidence(
    "Among stable runs GSPO and CISPO end well above DAPO, which clips token by token",
    "ScaleRL, 2510.13786",
)

UNTESTED: Mapping[str, str] = {
    "C07-sqrt-length": (
        "averaging over a response shrinks the ratio's noise like 1/sqrt(L) (2507.18071, sec. "
        "4.1): studies/response_length.toml measures it by a sweep of rollout.max_tokens"
    ),
    "C08-band-vs-length": (
        "with one range for all lengths, short responses are clipped more (2509.09177): "
        "studies/response_length.toml measures it by a sweep of rollout.max_tokens"
    ),
    "C10-flips-cause-noise": (
        "changed routing drives the noise of token ratios (2507.18071, sec. 5.3): it needs the "
        "same weights evaluated with and without replay"
    ),
    "C11-moe-noisier": (
        "token ratios are noisier on a mixture of experts than on a dense model (2511.20347). It "
        "needs a dense control of equal size. Compare log_ratio_std_tokens of two arms"
    ),
    "C16-moe-mismatch": (
        "sampler and trainer disagree more on a mixture of experts (2510.11370). It needs a dense"
        " control of equal size. Compare mismatch_k3 of two arms"
    ),
    "C17-needs-is": (
        "without an importance correction a low-precision rollout collapses training (2512.01374,"
        " Fig. 1): no study here collapses for that reason"
    ),
    "C18-dose-response": (
        "from two updates per batch on both clip and replay are needed (2512.01374): "
        "four claims over a grid. A study may declare a pair of it"
    ),
    "C19-band-insensitive": (
        "GSPO's result hardly depends on its clip range once its order of magnitude is right "
        "(2510.13786). It needs five ranges of each rule. A [sweep] of the range shows it"
    ),
    "C20-length-bias": (
        "dividing by the response's length makes responses shorter (2602.05261). Compare "
        "response_tokens_mean of two arms"
    ),
    "C21-precursors": (
        "collapse announces itself (2512.01374; 2510.23027): the report's section on collapse "
        "counts leads and false alarms of each signal"
    ),
    "C22-few-bad-tokens": (
        "a handful of tokens with A < 0 cause the instability (2602.04879): probabilities of "
        "single tokens are not recorded beside their advantage"
    ),
    "C24-less-variance": (
        "sequence ratios lower the variance of policy updates (AReaL's documentation): it needs "
        "backward passes over halves of one frozen batch"
    ),
    "C25-length-free-norm": (
        "the sequence objective makes the gradient's size independent of length (AReaL's "
        "documentation): it needs gradients of responses grouped by length"
    ),
}
"""Statements of the literature that gspo-lab cannot test, each with what a test lacks.

Studies may name them.
"""
