"""Logistic regression for few runs: Firth's penalised likelihood, finite on perfectly separated data.

`dose.py` asks two things of it: the best fit, and how far the fit worsens when a parameter, or a quotient of
parameters, is held. Shapes: N runs, P coefficients, Q free directions.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from gspo_lab.stats.arrays import Floats


class Fit(NamedTuple):
    """Coefficients [P] and l + log|I| / 2 there."""

    coefficients: Floats
    penalised_likelihood: float


def penalised_likelihood(design_NP: Floats, outcome_N: Floats, coefficients_P: Floats) -> tuple[float, Floats]:
    """l(b) + log|X'WX| / 2 (Firth 1993, Jeffreys' prior) and its gradient [P].

    The gradient is Firth's modified score X'(y - p + h (1/2 - p)), h the leverages, W = diag(p (1 - p)).
    """
    linear_N = design_NP @ coefficients_P
    p_N = special.expit(linear_N)
    root_NP = design_NP * np.sqrt(p_N * (1 - p_N))[:, None]
    q_NP, r_PP = np.linalg.qr(root_NP)
    diagonal = np.abs(np.diag(r_PP))
    if (diagonal < 1e-150).any():
        return -np.inf, np.zeros(design_NP.shape[1])
    likelihood = -float(np.logaddexp(0.0, np.where(outcome_N == 1, -linear_N, linear_N)).sum())
    leverage_N = (q_NP**2).sum(axis=1)
    gradient_P = design_NP.T @ (outcome_N - p_N + leverage_N * (0.5 - p_N))
    return likelihood + float(np.log(diagonal).sum()), gradient_P


def best_fit(
    design_NP: Floats, outcome_N: Floats, directions_PQ: Floats | None = None, start_Q: Floats | None = None
) -> Fit:
    """Maximise over the coefficients `directions_PQ @ free_Q` whose last free number is >= 0; without directions, over
    all coefficients, the last one >= 0. The penalty keeps the whole model's information (Heinze and Schemper 2002).
    """
    from scipy.optimize import minimize  # imported where it is used: only sweeps need it

    directions = np.eye(design_NP.shape[1]) if directions_PQ is None else directions_PQ
    free = directions.shape[1]

    def worse(free_Q: Floats) -> tuple[float, Floats]:
        value, gradient_P = penalised_likelihood(design_NP, outcome_N, directions @ free_Q)
        if not np.isfinite(value):
            return 1e10, np.zeros(free)
        return -value, -(directions.T @ gradient_P)

    starts = [np.zeros(free)] if start_Q is None else [np.zeros(free), start_Q]
    bounds = [(None, None)] * (free - 1) + [(0.0, None)]
    best = min(
        (
            minimize(
                worse,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-9},
            )
            for start in starts
        ),
        key=lambda result: float(result.fun),
    )
    return Fit(directions @ best.x, -float(best.fun))
