"""Claims that no study of this lab can test, each with the reason: a probe, a method or a grid that is not recorded."""

from gspo_lab.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C18-dose-response",
        grade="C/D",
        statement="From two updates per batch on both clip and replay are needed; R2 serves few of them, R3 many.",
        source="2512.01374",
        value="R2 >= R3 at N = 2, R3 > R2 at N = 4 and 8, R3 no gain at N = 1",
        criterion="four sub-claims over N in 1, 2, 4, 8, judged apart",
        unrecorded="it is four claims over a grid of N in {1, 2, 4, 8} x replay {none, R2, R3} x clip {on, off} with "
        "an equal-updates control, and this lab has no objective without a clip; write a pair of that grid in place "
        "(metric = 'reward_mean', statistic = 'area under the curve')",
        moe=True,
    ),
    Claim(
        id="C22-few-bad-tokens",
        grade="C",
        statement="A handful of tokens with A < 0 far outside the trust region cause the instability.",
        source="2602.04879; 2512.02556",
        value="at most .5 % of the tokens",
        criterion="below 1 % of tokens have A < 0 and lose more than .5 of probability; masking them delays collapse",
        unrecorded="the probabilities of single tokens are not recorded beside their advantage, and no objective of "
        "this lab masks such tokens",
    ),
    Claim(
        id="C24-less-variance",
        grade="B",
        statement="Sequence ratios lower the variance of policy updates.",
        source="AReaL's documentation of GSPO",
        value="stated without figures",
        criterion="relative variance of the gradient over halves of a frozen batch, GSPO / GRPO below 1",
        unrecorded="it needs backward passes over random halves of one frozen batch; a run records one per update",
    ),
    Claim(
        id="C25-length-free-norm",
        grade="B",
        statement="The sequence objective makes the size of the gradient independent of the response's length.",
        source="AReaL's documentation of GSPO",
        value="stated without figures",
        criterion="slope of log gradient norm on log L inside ±.2",
        unrecorded="it needs the gradient of responses grouped by length on one frozen batch; runs record one gradient "
        "per update",
    ),
)
