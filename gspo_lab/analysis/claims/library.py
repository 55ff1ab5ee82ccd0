"""The claims of the literature that a study may name, one function each.

Those on what the rules learn are in learning_claims.py.

To add a claim, write its function here, and what speaks against it in published.toml. Studies may
then name it; `gspo-lab claims` and docs/reference/claim-library.md (`python
docs/make_reference.py`) list it. For instance

    @claim(
        "C0-example",
        grade="C",
        source="an arXiv number, and where in it",
        published="stated without figures",
        criterion="entropy over the last fifth, GSPO / GRPO above 1",
        needs=(seeds(3),),
        figure="m-entropy",
    )
    def keeps_entropy(data: ClaimData, grpo: str, gspo: str) -> Estimates:
        \"\"\"GSPO keeps more entropy than GRPO.\"\"\"
        entropy = statistic("mean over the last fifth", "entropy")
        name = "entropy, GSPO / GRPO"
        above = Region(above=1)
        return Estimates((mean_over_seeds(data, name, entropy, (gspo, grpo), above, ratio=True),))

A claim needs all of its `parts`. `also` and `reasons` are shown beside them and decide nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gspo_lab.analysis.claims import learning_claims
from gspo_lab.analysis.claims.claim import Claim, claim
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import (
    Estimate,
    Estimates,
    Region,
    Untestable,
    condition,
    not_recorded,
)
from gspo_lab.analysis.claims.expectations import (
    largest,
    largest_in_updates,
    largest_of_runs,
    mean_over_seeds,
    rise_over_minibatches,
    statistic,
    within_responses,
)
from gspo_lab.analysis.claims.preconditions import (
    LEAST_CHANGE,
    mixture,
    other_numerics,
    reward_margin,
    routing_moves,
    same_first_rollout,
    same_reinforce,
    seeds,
    trainer_old_logprobs,
    unstable_run,
    updates,
)
from gspo_lab.analysis.findings.clip_fractions import active_share, saturated
from gspo_lab.analysis.readings import (
    Minibatch,
    Reading,
    Steps,
    Window,
    average,
    by_layer,
    pooled,
)
from gspo_lab.analysis.readings.curves import band_counts
from gspo_lab.analysis.readings.reading import CLIP_EVERYWHERE
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.reason import Reason
from gspo_lab.common.registry import installed, look_up
from gspo_lab.recording.records.update import CLIP_FRACTION

LEVEL = 10.0
"""The gap between the rules' clip fractions: one order of magnitude at least."""
GAP = "cf GSPO / cf GRPO, all mini-batches"
PUBLISHED_GAP = Region(30, 1000)
"""The published gaps: 115 times in the GSPO paper, 300 to 1,000 times on GSM8K."""
DEEP = 48
"""Layers of the model whose 10 % of changed experts the paper reports."""
AGREEMENT = 1.4
"""Within this factor of 1/sqrt(L) the spread of a response's mean counts as that of independent
tokens.
"""
ABOVE_0 = Region(above=0)
FIRST_MINIBATCH = Window(Steps.ALL, Minibatch.FIRST)
LATER_MINIBATCHES = Window(minibatch=Minibatch.LATER)
REWARD_AREA = statistic("area under the curve", "reward_mean")


@claim(
    "C01-first-minibatch",
    grade="A",
    source="2507.18071, eq. 10 and 12",
    published="identity: all ratios are 1",
    criterion="gradients within 1e-5, cf exactly 0, in every run",
    needs=(seeds(1), trainer_old_logprobs, same_reinforce, same_first_rollout),
    figure="m-clip-minibatch",
)
def first_minibatch(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """On the first mini-batch GSPO, GRPO and length-normalised REINFORCE are the same."""
    arms = (grpo, gspo)
    log_ratio = largest("log_ratio_max_abs", FIRST_MINIBATCH)
    clipped = largest(CLIP_FRACTION, FIRST_MINIBATCH)
    text = "of the gradients the norms are recorded, so their cosine is not measured"
    return Estimates(
        (
            largest_of_runs(data, "largest |l_t| on mini-batch 0", log_ratio, arms, 1e-5),
            largest_of_runs(data, "largest cf on mini-batch 0", clipped, arms, 0),
            largest_in_updates(
                data,
                "relative difference of the first gradient's norm",
                "grad_norm",
                updates="mini-batch",
                relative=True,
                at_most=1e-5,
            ),
            largest_in_updates(
                data, "difference of the first loss", "loss", updates="mini-batch", at_most=1e-6
            ),
        ),
        reasons=(Reason("note", text),),
    )


@claim(
    "C02-token-variant",
    grade="A",
    source="2507.18071, eq. 13 to 17",
    published="identity: same value, clip and gradient",
    criterion="equal loss, gradient and clips in every run",
    needs=(seeds(1), same_first_rollout),
)
def token_variant(data: ClaimData, gspo: str, gspo_token: str) -> Estimates:
    """GSPO-token is GSPO where a response's tokens share one advantage."""
    gradient = "relative difference of the gradient norm"
    text = (
        "read over the updates of the first rollout batch, where rounding has been through the"
        " optimizer; the frozen-batch identity (1e-6) is held by the objectives' own tests"
    )
    return Estimates(
        (
            largest_in_updates(data, "difference of the loss", "loss", at_most=1e-6),
            largest_in_updates(data, gradient, "grad_norm", relative=True, at_most=1e-4),
            largest_in_updates(data, "difference in clipped tokens", "clipped_tokens", at_most=0),
        ),
        reasons=(Reason("note", text),),
    )


@claim(
    "C03-equal-weights",
    grade="A/B",
    source="2507.18071, sec. 4.2",
    published="weights in (0, 1 + e] for A > 0, [1 - e, inf) for A < 0",
    criterion="GSPO clips responses whole; GRPO's largest weight at A < 0 lies above its range",
    needs=(seeds(3), updates(2)),
    figure="m-ratio-max-negative",
)
def equal_weights(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """GSPO weights a response's tokens alike; GRPO's weights differ and are unbounded where A <
    0.
    """
    partly_clipped = within_responses("partly_clipped")
    spread = within_responses("spread")
    largest_weight = largest("ratio_max_negative", LATER_MINIBATCHES)
    outside = Region(above=1 + data.settings(grpo).objective.clip_high)
    return Estimates(
        (
            largest_of_runs(data, "GSPO's responses clipped in part", partly_clipped, [gspo], 0),
            mean_over_seeds(
                data, "GRPO: largest weight at A < 0", largest_weight, [grpo], outside, ratio=True
            ),
        ),
        also=(mean_over_seeds(data, "GRPO: std of l_t within a response", spread, [grpo], None),),
    )


@claim(
    "C04-clip-gap",
    grade="B",
    source="2507.18071, sec. 5.2",
    published=".15 against .0013 (read off a bar chart): 115 times; 300 to 1,000 times on GSM8K"
    " (verl#2775)",
    criterion="ratio above 10",
    needs=(seeds(3), updates(2)),
    figure="m-clip",
)
def clip_gap(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """GSPO clips far more tokens than GRPO, each in its own range."""
    ratios, floors = _clip_ratios(data, grpo, gspo)
    reasons = _ceilings(data)
    if floors:
        text = (
            f"{grpo} clipped no token at seed {', '.join(map(str, floors))}: one token is assumed,"
            " so the ratio is a lower bound there"
        )
        reasons.append(Reason("lower-bound", text))
    contradicted = () if floors else None
    gap = data.over_seeds(GAP, ratios, Region(above=LEVEL), contradicted, ratio=True)
    return Estimates((gap,), reasons=tuple(reasons))


def _clip_ratios(data: ClaimData, grpo: str, gspo: str) -> tuple[dict[int, float], list[int]]:
    """Per seed the ratio of clip fractions, token-weighted over all settled updates; the seeds at
    which GRPO clipped nothing, where one token is assumed.
    """
    ratios = {}
    floors = []
    for seed in data.seeds:
        shares = {arm: data.value(CLIP_EVERYWHERE, arm, seed) for arm in (grpo, gspo)}
        clipped = {arm: round(share.total) for arm, share in shares.items()}
        if not any(clipped.values()):
            raise Untestable("nothing-clipped", f"neither arm clipped a token at seed {seed}")
        if not clipped[grpo]:
            floors.append(seed)
        gspo_share = max(clipped[gspo], 1) / shares[gspo].weight
        ratios[seed] = gspo_share / (max(clipped[grpo], 1) / shares[grpo].weight)
    return ratios, floors


def _ceilings(data: ClaimData) -> list[Reason]:
    reasons = []
    for arm in data.arms:
        if saturated(data.source, arm):
            share = active_share(data.source, arm) or 0.0
            text = (
                f"{arm} is saturated: it clips {share:.3f} of the active tokens on mini-batches >="
                " 1, so its cf is a ceiling and the ratio measures the other arm's"
            )
            reasons.append(Reason("ceiling", text))
    return reasons


@claim(
    "C05-gap-robust",
    grade="B",
    source="2507.18071, sec. 5.2",
    published="stated without figures",
    criterion="on a 5 x 5 grid of ranges, 80 % reach a ratio above 10; contradicted if fewer than"
    " half do",
    needs=(seeds(3), updates(2)),
    figure="m-would-clip",
)
def gap_on_the_grid(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """Adjusting the two clip ranges does not remove the gap.

    Both ranges x {1/4 .. 4} on the batches of both arms: the ratio that 80 % of the 25 cells reach,
    and half. A count of 0 stands as one token. A cell in which neither rule would clip counts as
    LEVEL: it is on neither side.
    """
    most: dict[int, float] = {}
    half: dict[int, float] = {}
    for seed in data.seeds:
        clipped: dict[str, Floats] = {}
        for arm in (grpo, gspo):
            counts, _ = band_counts(data.source, data.run(arm, seed))
            if not counts:
                raise not_recorded("band_counts", arm, seed)
            clipped = {rule: counts[rule] + clipped.get(rule, 0) for rule in ("grpo", "gspo")}
        ratios = []
        for high in clipped["gspo"]:
            for low in clipped["grpo"]:
                ratios.append(max(high, 1) / max(low, 1) if high or low else LEVEL)
        ratios.sort()
        most[seed] = float(ratios[len(ratios) // 5])
        half[seed] = float(ratios[len(ratios) // 2])
    above = Region(above=LEVEL)
    name = "cf GSPO / cf GRPO that {} of the cells reach"
    return Estimates(
        (
            data.over_seeds(name.format("80 %"), most, above, (), ratio=True),
            data.over_seeds(name.format("half"), half, above, ratio=True),
        )
    )


@claim(
    "C06-grows-with-mb",
    grade="B",
    source="derived: the policy moves away from the one that sampled",
    published="cf(0) = 0; a mean over N mini-batches is diluted by (N - 1)/N",
    criterion="cf rises from mini-batch 1 to the last, and cf(0) = 0",
    needs=(seeds(3), updates(4), trainer_old_logprobs),
    figure="m-clip-minibatch",
)
def grows_with_minibatches(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """The clip fraction grows from mini-batch to mini-batch and is 0 on the first."""
    at_first = largest(CLIP_FRACTION, FIRST_MINIBATCH)
    rise = rise_over_minibatches(CLIP_FRACTION)
    name = "{}: rise of cf from mini-batch 1 to the last"
    return Estimates(
        (
            largest_of_runs(data, "largest cf on mini-batch 0", at_first, (grpo, gspo), 0),
            mean_over_seeds(data, name.format("GRPO"), rise, [grpo], ABOVE_0),
            mean_over_seeds(data, name.format("GSPO"), rise, [gspo], ABOVE_0),
        )
    )


@claim(
    "C09-expert-change",
    grade="B",
    source="2507.18071, sec. 5.3",
    published="about 10 % per update on 48 layers, more in deeper models",
    criterion="magnitude .05 to .15 on 48 layers; on fewer layers above .05, and rising with depth",
    needs=(seeds(3), updates(2), mixture),
    moe=True,
    figure="m-expert-layer",
)
def expert_change(data: ClaimData, grpo: str) -> Estimates:
    """Routing moves with every update, more in later layers; on 48 layers about a tenth of the
    experts.

    The share of natural experts that one update changes (mini-batch 1), and its slope over the
    layers. A share is never below 0, so its bound is half of the published tenth. The paper has
    less change in shallower models, so there a share below the bound contradicts nothing.
    """
    one_update = Reading("expert_change", Window(minibatch=Minibatch.SECOND))
    last_update = Reading("expert_change", Window(minibatch=Minibatch.FINAL))
    after_one = {}
    last = {}
    slope = {}
    layers = 0
    for seed in data.seeds:
        after_one[seed] = data.number(one_update, grpo, seed)
        last[seed] = data.number(last_update, grpo, seed)
        changes = _change_by_layer(
            data, replace(one_update, metric="expert_change_layers"), grpo, seed
        )
        layers = len(changes)
        slope[seed] = float(np.polyfit(np.arange(layers), changes, 1)[0]) if layers > 1 else 0.0
    name = "expert change after one update"
    text = "one learning rate per arm: whether it rises with the learning rate is not judged"
    reasons = [Reason("one-learning-rate", text)]
    if layers >= DEEP:
        parts = [data.over_seeds(name, after_one, Region(LEAST_CHANGE, 3 * LEAST_CHANGE))]
    else:
        parts = [data.over_seeds(name, after_one, Region(above=LEAST_CHANGE), ())]
        text = (
            f"direction only: the magnitude .05 to .15 is not testable here, the model has {layers}"
            f" routed layers and about {DEEP} are needed"
        )
        reasons.insert(0, Reason("few-layers", text))
    if layers > 1:
        parts.append(data.over_seeds("its slope over the layers", slope, ABOVE_0))
    at_end = data.over_seeds("expert change at the last mini-batch", last, None)
    return Estimates(tuple(parts), (at_end,), tuple(reasons))


def _change_by_layer(data: ClaimData, reading: Reading, arm: str, seed: int) -> list[float]:
    steps = range(data.settings(arm).steps)
    layers = by_layer(data.source, reading, steps).get(data.run(arm, seed), ())
    if not layers or None in layers:
        raise not_recorded(reading.metric, arm, seed)
    return [float(value or 0.0) for value in layers]


@claim(
    "C12-grpo-needs-replay",
    grade="C/D",
    source="2507.18071, Fig. 3; 2512.01374 for N >= 2; 2510.11370",
    published="GRPO without replay does not converge; a crash at step 120 in R3's paper",
    criterion="reward AUC higher and fewer collapses with replay; contradicted if lower, or inside"
    " the margin of training reward",
    needs=(seeds(3), updates(2), mixture, routing_moves, unstable_run),
    moe=True,
    figure="m-reward",
)
def grpo_needs_replay(data: ClaimData, grpo: str, grpo_replay: str) -> Estimates:
    """On a mixture of experts GRPO needs routing replay to converge."""
    contradicted = [Region(below=0)]
    margin = data.verdict.reward_margin
    if margin is not None:
        contradicted.append(Region(-margin, margin))
    area = mean_over_seeds(
        data,
        "reward AUC, GRPO with replay - without",
        REWARD_AREA,
        (grpo_replay, grpo),
        ABOVE_0,
        contradicted,
    )
    return Estimates((area, _fewer_collapses(data, grpo, grpo_replay)))


def _fewer_collapses(data: ClaimData, grpo: str, grpo_replay: str) -> Estimate:
    """Runs that collapsed with routing replay less those without, on the seeds that all arms
    have.
    """
    collapsed = {}
    for arm in (grpo, grpo_replay):
        collapsed[arm] = sum(data.stability(arm, seed).collapse is not None for seed in data.seeds)
    runs = len(data.seeds)
    text = (
        f"{collapsed[grpo_replay]} of {runs} runs collapsed with replay, {collapsed[grpo]} of"
        f" {runs} without"
    )
    fewer = float(collapsed[grpo_replay] - collapsed[grpo])
    return condition(
        "collapses, with replay - without",
        fewer < 0,
        n=runs,
        reason=Reason("collapses", text),
        estimate=fewer,
    )


@claim(
    "C13-gspo-no-replay",
    grade="C",
    source="2507.18071, Fig. 1 and sec. 5.3",
    published="stable curves without replay, one run each",
    criterion="GRPO gains more by replay than GSPO, and GSPO at most the margin of training reward;"
    " contradicted if GSPO gains more than either",
    needs=(seeds(3), updates(2), mixture),
    for_support=(reward_margin, routing_moves, unstable_run),
    moe=True,
    figure="pairs",
)
def gspo_no_replay(
    data: ClaimData, grpo: str, grpo_replay: str, gspo: str, gspo_replay: str
) -> Estimates:
    """GSPO does not need routing replay."""
    gained = {}
    for seed in data.seeds:
        area = {arm: REWARD_AREA(data, arm, seed) for arm in data.arms}
        gained[seed] = (area[grpo_replay] - area[grpo]) - (area[gspo_replay] - area[gspo])
    margin = data.verdict.reward_margin
    within = None
    above: list[Region] = []
    if margin is not None:
        within = Region(-margin, margin)
        above = [Region(above=margin)]
    return Estimates(
        (
            data.over_seeds("what replay gives GRPO more than GSPO, reward AUC", gained, ABOVE_0),
            mean_over_seeds(
                data,
                "what replay gives GSPO, reward AUC",
                REWARD_AREA,
                (gspo_replay, gspo),
                within,
                above,
            ),
        ),
        also=(
            mean_over_seeds(
                data,
                "what replay gives GRPO, reward AUC",
                REWARD_AREA,
                (grpo_replay, grpo),
                ABOVE_0,
            ),
        ),
    )


@claim(
    "C15-precision-tolerant",
    grade="B",
    source="2507.18071, sec. 5.4, without an experiment",
    published="stated without figures",
    criterion="std of mean differences / std of token differences within x1.4 of 1/sqrt(L); fewer"
    " flipped clips",
    needs=(seeds(3), updates(2), other_numerics, trainer_old_logprobs),
)
def tolerates_precision(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """The sequence ratio suffers less from differences in precision.

    The spread of a response's mean mismatch against independent tokens', and the clips that the
    other program's old log-probs would change, both rules on the same batches of both arms.
    """
    of_means = Reading("mismatch_std_responses", Window(Steps.ALL))
    independent = Reading("mismatch_std_independent", Window(Steps.ALL))
    spread: dict[int, float] = {}
    flips: dict[str, dict[int, float]] = {"grpo": {}, "gspo": {}}
    for seed in data.seeds:
        ratios = [
            data.number(of_means, arm, seed) / data.number(independent, arm, seed)
            for arm in (grpo, gspo)
        ]
        spread[seed] = average(ratios) or 0.0
        for rule, by_seed in flips.items():
            reading = Reading(f"flip_fraction_tokens_{rule}")
            shares = [data.value(reading, arm, seed) for arm in (grpo, gspo)]
            values = np.array([share.value for share in shares])
            weights = np.array([share.weight for share in shares])
            by_seed[seed] = pooled(values, weights).value or 0.0
    fewer = {seed: flips["gspo"][seed] - flips["grpo"][seed] for seed in spread}
    agrees = Region(1 / AGREEMENT, AGREEMENT)
    name = "spread of a response's mean mismatch / that of independent tokens"
    changed = "share of tokens whose clip the other's log-probs change, GSPO - GRPO"
    return Estimates(
        (
            data.over_seeds(name, spread, agrees, (), ratio=True),
            data.over_seeds(changed, fewer, Region(below=0)),
        ),
        also=tuple(
            data.over_seeds(f"that share under {rule.upper()}", by_seed, None)
            for rule, by_seed in flips.items()
        ),
    )


@claim(
    "C27-gap-as-published",
    grade="B",
    source="2507.18071, sec. 5.2; verl#2775",
    published="115 times (.15 against .0013, read off a bar chart); 300 to 1,000 times on GSM8K",
    criterion="ratio between 30 and 1,000",
    needs=(seeds(3), updates(2)),
    figure="m-clip",
)
def gap_as_published(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """GSPO clips 30 to 1,000 times as many tokens as GRPO, each in its own range."""
    ratios, floors = _clip_ratios(data, grpo, gspo)
    if floors:
        text = (
            f"{grpo} clipped no token at seed {', '.join(map(str, floors))}: only a lower bound of"
            " the ratio is known there"
        )
        raise Untestable("lower-bound", text)
    gap = data.over_seeds(GAP, ratios, PUBLISHED_GAP, ratio=True)
    return Estimates((gap,), reasons=tuple(_ceilings(data)))


_INSTALLED = [look_up("claim", name, {}) for name in installed("claim")]
_DEFINED = (*vars(learning_claims).values(), *dict(globals()).values())
_BUILT_IN = [entry for entry in _DEFINED if isinstance(entry, Claim)]
_CLAIMS = {entry.id: entry for entry in (*_INSTALLED, *_BUILT_IN)}
LIBRARY: Mapping[str, Claim] = {name: _CLAIMS[name] for name in sorted(_CLAIMS)}
"""The claims above, and those that the entry points `gspo_lab.claims` of installed packages give.
"""
