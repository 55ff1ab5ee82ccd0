"""C01 to C08: what the two ratios do to tokens. Symbols as in records.py; cf = clip_fraction_tokens."""

import math

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Claim, Counter, Roles
from gspo_lab.claims.parts import ALPHA, Part, Reading, Region, Side, Untestable, exact, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.findings.clipped import SATURATED
from gspo_lab.records import BAND_SCALES
from gspo_lab.stats import paired_t

PAIR = ("grpo", "gspo")
LEVEL = 10.0
"""The gap between the rules: one order of magnitude at least."""
SAME_GRADIENT = 1e-5
SAME_LOSS = 1e-6
SAME_LATER = 1e-4
"""After some updates: rounding has been through Adam, whose steps hardly depend on a gradient's size. 4e-7 was seen."""
ZERO = 0.0

TOO_TIGHT = Counter(
    "A range of the paper's order works badly on a dense 8B model; from 1e-3 on the choice no longer matters",
    "ScaleRL, 2510.13786",
)
SILENCED = Counter(
    "With so narrow a range in mean log-prob a few outlying tokens take a whole response's gradient away",
    "SAPO, 2511.20347",
)
DENSE_EQUAL = Counter(
    "Dense model, short answers, 4 mini-batches: equal test scores, GRPO slightly faster", "verl-project/verl#2775"
)
LENGTH_BAND = Counter(
    "One range for all lengths is called biased: the clip rate then depends on length, a band ~ sqrt(L) does not",
    "FSPO, 2509.09177",
)


def first_minibatch(recorded: Recorded, roles: Roles) -> Reading:
    """Ratios and clips at every mini-batch 0; gradient and loss of the very first one, before the arms part."""
    moved, clipped, gradient, loss = {}, {}, {}, {}
    for seed in recorded.seeds(roles.values()):
        first = {}
        for role in PAIR:
            rows = recorded.of(roles[role], seed, "updates", "log_ratio_max_abs", "clip_fraction_tokens")
            zero = rows[rows["minibatch"] == 0]
            name = f"{roles[role]}/s{seed}"
            moved[name], clipped[name] = (
                float(zero["log_ratio_max_abs"].max()),
                float(zero["clip_fraction_tokens"].max()),
            )
            both = recorded.of(roles[role], seed, "updates", "grad_norm", "loss")
            first[role] = both[(both["step"] == 0) & (both["minibatch"] == 0)].iloc[0]
        norm = {role: float(first[role]["grad_norm"]) for role in PAIR}
        if max(norm.values()) > 0:
            gradient[f"s{seed}"] = abs(norm["gspo"] - norm["grpo"]) / max(norm.values())
        loss[f"s{seed}"] = abs(float(first["gspo"]["loss"]) - float(first["grpo"]["loss"]))
    if not gradient:
        raise Untestable("no response of any seed's first mini-batch had an advantage: the gradients compared are 0")
    return Reading(
        (
            exact("largest |l_t| on mini-batch 0", moved, SAME_GRADIENT, what=f"at most {SAME_GRADIENT:g}"),
            exact("largest cf on mini-batch 0", clipped, ZERO, what="exactly 0"),
            exact(
                "relative difference of the first gradient's norm",
                gradient,
                SAME_GRADIENT,
                what=f"at most {SAME_GRADIENT:g}",
            ),
            exact("difference of the first loss", loss, SAME_LOSS, what=f"at most {SAME_LOSS:g}"),
        ),
        notes=("of the gradients the norms are recorded, so their cosine is not measured",),
    )


def token_variant(recorded: Recorded, roles: Roles) -> Reading:
    """Both arms' first rollout batch, update by update: the weights agree as long as the gradients did."""
    loss, gradient, clips = {}, {}, {}
    for seed in recorded.seeds(roles.values()):
        frames = []
        for role in ("gspo", "gspo-token"):
            rows = recorded.of(roles[role], seed, "updates", "loss", "grad_norm", "clipped_tokens")
            frames.append(rows[rows["step"] == 0].set_index("minibatch"))
        a, b = frames
        loss[f"s{seed}"] = float((a["loss"] - b["loss"]).abs().max())
        larger = a["grad_norm"].where(a["grad_norm"] > b["grad_norm"], b["grad_norm"])
        if larger.max() > 0:  # else no response had an advantage
            gradient[f"s{seed}"] = float(((a["grad_norm"] - b["grad_norm"]).abs() / larger)[larger > 0].max())
        clips[f"s{seed}"] = float((a["clipped_tokens"] - b["clipped_tokens"]).abs().max())
    if not gradient:
        raise Untestable("no response of any seed's first rollout batch had an advantage: the gradients compared are 0")
    return Reading(
        (
            exact("difference of the loss", loss, SAME_LOSS, what=f"at most {SAME_LOSS:g}"),
            exact("relative difference of the gradient norm", gradient, SAME_LATER, what=f"at most {SAME_LATER:g}"),
            exact("difference in clipped tokens", clips, ZERO, what="exactly 0"),
        ),
        notes=(
            "read over the updates of the first rollout batch, where rounding has been through the optimizer; "
            "the frozen-batch identity (1e-6) is held by the objectives' own tests",
        ),
    )


def equal_weights(recorded: Recorded, roles: Roles) -> Reading:
    """GSPO clips a response whole or not at all; GRPO's weight at A < 0 leaves the range on the side without a clip."""
    partly: dict[str, float] = {}
    within: dict[int, float] = {}
    beyond: dict[int, float] = {}
    range_high = 1 + recorded.settings[roles["grpo"]].objective.clip_high
    for seed in recorded.seeds(roles.values()):
        gspo, grpo = (recorded.details(roles[role], seed) for role in ("gspo", "grpo"))
        partly[f"{roles['gspo']}/s{seed}"] = float(((gspo.clipped > 0) & (gspo.clipped < gspo.length)).sum())
        long = grpo.length > 1
        spread = grpo.squares[long] / grpo.length[long] - (grpo.total[long] / grpo.length[long]) ** 2
        within[seed] = float(np.sqrt(np.maximum(spread, 0)).mean())
        rows = recorded.settled(roles["grpo"], seed, "ratio_max_negative", later=True)
        beyond[seed] = float(rows["ratio_max_negative"].max())
    return Reading(
        (
            exact("GSPO's responses clipped in part", partly, ZERO, what="exactly 0"),
            over_seeds("GRPO: std of l_t within a response", within, Region(above=0), [Region(below=0)]),
            over_seeds(
                "GRPO: largest weight at A < 0",
                beyond,
                Region(above=range_high),
                [Region(below=range_high)],
                ratio=True,
            ),
        )
    )


def clip_gap(recorded: Recorded, roles: Roles) -> Reading:
    """cf of each arm's own rule and range, token-weighted over all settled updates, GSPO / GRPO."""
    ratios, floors = {}, []
    for seed in recorded.seeds(roles.values()):
        (grpo, tokens), (gspo, own) = (recorded.clipped(roles[role], seed) for role in PAIR)
        if grpo == 0 and gspo == 0:
            raise Untestable(f"neither arm clipped a token at seed {seed}")
        if grpo == 0:
            floors.append(seed)
        ratios[seed] = (max(gspo, 1) / own) / (max(grpo, 1) / tokens)
    name = "cf GSPO / cf GRPO"
    notes = []
    for role in PAIR:
        if said := needs.saturation(recorded, roles[role]):
            notes.append(f"{said} (above {SATURATED}), so its cf is a ceiling and the ratio measures the other arm's")
    if floors:
        notes.append(
            f"{roles['grpo']} clipped no token at seed {', '.join(map(str, floors))}: one token is assumed, so the "
            "ratio is a lower bound there"
        )
        return Reading((over_seeds(name, ratios, Region(above=LEVEL), ratio=True),), notes=tuple(notes))
    magnitude = Region(30, 1000)
    outside = [Region(below=30), Region(above=1000)]
    return Reading(
        (over_seeds(name, ratios, Region(above=LEVEL), [Region(below=LEVEL)], ratio=True),),
        also=(over_seeds("its magnitude", ratios, magnitude, outside, ratio=True),),
        notes=tuple(notes),
    )


def gap_on_the_grid(recorded: Recorded, roles: Roles) -> Reading:
    """Both ranges x {1/4 .. 4}: in how many of the 25 cells do the seeds' intervals put the ratio above 10?

    Counterfactual on the same batches: both arms' updates together. A cell without clips counts one token, so that it
    can be placed on one side; a cell in which neither rule would clip lies on neither.
    """
    pairs = recorded.seeds(roles.values())
    log_SGH = np.full((len(pairs), len(BAND_SCALES), len(BAND_SCALES)), np.nan)
    for place, seed in enumerate(pairs):
        counts = [recorded.band_counts(roles[role], seed) for role in PAIR]
        grpo, gspo = (counts[0][rule] + counts[1][rule] for rule in PAIR)
        for g, high in enumerate(gspo):
            for h, low in enumerate(grpo):
                if high or low:
                    log_SGH[place, g, h] = math.log10(max(high, 1) / max(low, 1))
    above: list[float] = []
    below: list[float] = []
    for cell in log_SGH.reshape(len(pairs), -1).T:
        if np.isnan(cell).any():
            continue
        found = paired_t(cell - 1.0, ALPHA, scale=float(np.abs(cell).max()))
        # Cells of equal counts in every seed have no interval: they are on their side without a doubt or not at all.
        certain = 0.0 if found.estimate else 1.0
        (above if cell.mean() > 1 else below).append(certain if found.p is None else found.p)
    cells = len(BAND_SCALES) ** 2
    side: Side | None = None
    p: float | None = None
    if len(above) >= math.ceil(0.8 * cells):
        side, p = "supported", sorted(above)[math.ceil(0.8 * cells) - 1]
    elif len(below) > cells / 2:
        side, p = "contradicted", sorted(below)[math.floor(cells / 2)]
    sure = sum(one < ALPHA for one in above)
    part = Part(
        "share of the 25 cells with cf GSPO / cf GRPO > 10",
        "supported if 0.8 of the cells or more, contradicted if below 0.5",
        len(pairs),
        len(above) / cells,
        p=p,
        side=side,
        note=f"{sure} cells have their whole interval above {LEVEL:g}, {sum(one < ALPHA for one in below)} below it",
    )
    return Reading((part,))


def grows_with_minibatch(recorded: Recorded, roles: Roles) -> Reading:
    """Spearman's rank correlation of cf and minibatch over a run's settled updates with minibatch >= 1."""
    at_zero: dict[str, float] = {}
    parts, notes = [], []
    for role in PAIR:
        arm = roles[role]
        found = {}
        for seed in recorded.seeds(roles.values()):
            every = recorded.of(arm, seed, "updates", "clip_fraction_tokens")
            at_zero[f"{arm}/s{seed}"] = float(every[every["minibatch"] == 0]["clip_fraction_tokens"].max())
            rows = recorded.settled(arm, seed, "clip_fraction_tokens", later=True)
            if rows["clip_fraction_tokens"].nunique() > 1:
                ranks = rows[["clip_fraction_tokens", "minibatch"]].rank()
                found[seed] = float(np.corrcoef(ranks["clip_fraction_tokens"], ranks["minibatch"])[0, 1])
        if len(found) == len(recorded.seeds(roles.values())):
            parts.append(over_seeds(f"{arm}: rank correlation", found, Region(above=0), [Region(below=0)]))
        else:
            notes.append(f"{arm} clips the same share at every update of some seed: no correlation there")
    if not parts:
        raise Untestable("; ".join(notes))
    return Reading((exact("cf on mini-batch 0", at_zero, ZERO, what="exactly 0"), *parts), notes=tuple(notes))


def square_root_of_length(recorded: Recorded, roles: Roles) -> Reading:
    """Slopes over length bins of log std(mean l) and log Var(sum l) on log L, per run."""
    of_mean, of_sum = {}, {}
    for seed in recorded.seeds(roles.values()):
        found = recorded.details(roles["gspo"], seed)
        bins = needs.length_bins(found.length)
        log_length = np.log([found.length[one].mean() for one in bins])
        spread = np.array([(found.total[one] / found.length[one]).std() for one in bins])
        variance = np.array([found.total[one].var() for one in bins])
        if not (spread > 0).all():
            raise Untestable(f"a length bin of {roles['gspo']}, seed {seed}, has no spread of log-ratios")
        of_mean[seed] = float(np.polyfit(log_length, np.log(spread), 1)[0])
        of_sum[seed] = float(np.polyfit(log_length, np.log(variance), 1)[0])
    return Reading(
        (
            over_seeds(
                "slope of log std(mean l) on log L",
                of_mean,
                Region(-0.8, -0.2),
                [Region(below=-0.8), Region(above=-0.2)],
            ),
            over_seeds(
                "slope of log Var(sum l) on log L", of_sum, Region(0.5, 1.6), [Region(below=0.5), Region(above=1.6)]
            ),
        ),
        notes=("independent errors would give -.5 and 1",),
    )


def short_clip_more(recorded: Recorded, roles: Roles) -> Reading:
    """GSPO's cf on mini-batches >= 1 in the shortest third of the responses minus that in the longest."""
    found: dict[int, float] = {}
    for seed in recorded.seeds(roles.values()):
        one = recorded.details(roles["gspo"], seed)
        low, high = np.quantile(one.length, [1 / 3, 2 / 3])
        short, long = one.length <= low, one.length >= high
        shares = [one.clipped[third].sum() / one.length[third].sum() for third in (short, long)]
        found[seed] = float(shares[0] - shares[1])
    return Reading((over_seeds("cf, shortest - longest third", found, Region(above=0), [Region(below=0)]),))


_B = (needs.seeds(), needs.minibatches())

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C01-first-minibatch",
        grade="A",
        statement="On the first mini-batch GSPO, GRPO and length-normalised REINFORCE are the same.",
        source="2507.18071, eq. 10 and 12",
        value="identity: all ratios are 1",
        criterion="gradients within 1e-5, cf exactly 0, in every run",
        roles=PAIR,
        needs=(
            needs.seeds(1),
            needs.trainer_old_logprobs(),
            needs.same_reinforce(),
            needs.same_first_rollout("grpo", "gspo"),
        ),
        evaluate=first_minibatch,
    ),
    Claim(
        id="C02-token-variant",
        grade="A",
        statement="GSPO-token is GSPO where a response's tokens share one advantage.",
        source="2507.18071, eq. 13 to 17",
        value="identity: same value, clip and gradient",
        criterion="equal loss, gradient and clips in every run",
        roles=("gspo", "gspo-token"),
        needs=(needs.seeds(1), needs.same_first_rollout("gspo", "gspo-token")),
        evaluate=token_variant,
    ),
    Claim(
        id="C03-equal-weights",
        grade="A/B",
        statement="GSPO weights a response's tokens alike; GRPO's weights differ and are unbounded where A < 0.",
        source="2507.18071, sec. 4.2",
        value="weights in (0, 1 + e] for A > 0, [1 - e, inf) for A < 0",
        criterion="GSPO clips responses whole; GRPO's largest weight at A < 0 lies above its range",
        roles=PAIR,
        needs=_B,
        counter=(SILENCED,),
        evaluate=equal_weights,
    ),
    Claim(
        id="C04-clip-gap",
        grade="B",
        statement="GSPO clips far more tokens than GRPO, each in its own range.",
        source="2507.18071, sec. 5.2",
        value=".15 against .0013 (read off a bar chart): 115 times; 300 to 1,000 times on GSM8K (verl#2775)",
        criterion="ratio above 10 (direction); 30 to 1,000 (magnitude)",
        roles=PAIR,
        needs=_B,
        counter=(TOO_TIGHT, SILENCED, DENSE_EQUAL),
        evaluate=clip_gap,
    ),
    Claim(
        id="C05-gap-robust",
        grade="B",
        statement="Adjusting the two clip ranges does not remove the gap.",
        source="2507.18071, sec. 5.2",
        value="stated without figures",
        criterion="ratio above 10 in 80 % of a 5 x 5 grid of ranges; contradicted in fewer than 50 %",
        roles=PAIR,
        needs=_B,
        counter=(
            Counter(
                "A sequence range calibrated to short responses gives far smaller ratios: the gap's size follows the "
                "ranges' own levels",
                "derived from sigma_seq = sigma_tok / sqrt(L)",
            ),
            TOO_TIGHT,
        ),
        evaluate=gap_on_the_grid,
    ),
    Claim(
        id="C06-grows-with-mb",
        grade="B",
        statement="The clip fraction grows from mini-batch to mini-batch and is 0 on the first.",
        source="derived: the policy moves away from the one that sampled",
        value="cf(0) = 0; a mean over N mini-batches is diluted by (N - 1)/N",
        criterion="rank correlation on mini-batches >= 1 above 0, and cf(0) = 0",
        roles=PAIR,
        needs=(needs.seeds(), needs.minibatches(4), needs.trainer_old_logprobs()),
        evaluate=grows_with_minibatch,
    ),
    Claim(
        id="C07-sqrt-length",
        grade="B",
        statement="Averaging over a response shrinks the ratio's noise like 1/sqrt(L).",
        source="2507.18071, sec. 4.1; 2509.09177; 2605.07331",
        value="slope -.5 of log std(mean l), 1 of log Var(sum l), if token errors are independent",
        criterion="slopes inside -.8 to -.2 and .5 to 1.6",
        roles=("gspo",),
        needs=(*_B, needs.spread_of_lengths("gspo")),
        evaluate=square_root_of_length,
    ),
    Claim(
        id="C08-band-vs-length",
        grade="B",
        statement="With one range for all lengths, short responses are clipped more.",
        source="2509.09177",
        value="stated without figures",
        criterion="cf of the shortest third minus that of the longest above 0",
        roles=("gspo",),
        needs=(*_B, needs.spread_of_lengths("gspo"), needs.not_saturated("gspo")),
        counter=(LENGTH_BAND,),
        evaluate=short_clip_more,
    ),
)
