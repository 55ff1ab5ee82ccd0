"""Logistic regression for few runs: Firth's penalised likelihood, finite on perfectly separated data.

`ed50.py` asks two things of it: the best fit, and how far the fit worsens when a parameter, or a quotient of
parameters, is held. Shapes: N runs, P coefficients, Q free directions.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from gspo_lab.stats.array_checks import Floats

STEPS, HALVINGS = 500, 60
LEAST_GAIN = 1e-15
"""A step that promises a smaller gain of the likelihood ends the search."""
ROUNDING = 1e-13
"""How far a step may lower the likelihood, in which rounding errors are of this size."""


class Fit(NamedTuple):
    """Coefficients [P] and l + log|I| / 2 there."""

    coefficients: Floats
    penalised_likelihood: float


class Likelihood(NamedTuple):
    """l(b) + log|X'WX| / 2, its gradient [P] and X'WX [P, P]."""

    value: float
    gradient: Floats
    information: Floats


def penalised_likelihood(design_NP: Floats, outcome_N: Floats, coefficients_P: Floats) -> Likelihood:
    """The likelihood with Jeffreys' prior (Firth 1993); its value is -inf where X'WX is singular.

    The gradient is Firth's modified score X'(y - p + h (1/2 - p)), h the leverages, W = diag(p (1 - p)).
    """
    linear_N = design_NP @ coefficients_P
    p_N = special.expit(linear_N)
    root_NP = design_NP * np.sqrt(p_N * (1 - p_N))[:, None]
    q_NP, r_PP = np.linalg.qr(root_NP)
    diagonal = np.abs(np.diag(r_PP))
    if (diagonal < 1e-150).any():
        return Likelihood(-np.inf, np.zeros(len(coefficients_P)), np.eye(len(coefficients_P)))
    likelihood = -float(np.logaddexp(0.0, np.where(outcome_N == 1, -linear_N, linear_N)).sum())
    leverage_N = (q_NP**2).sum(axis=1)
    gradient_P = design_NP.T @ (outcome_N - p_N + leverage_N * (0.5 - p_N))
    return Likelihood(likelihood + float(np.log(diagonal).sum()), gradient_P, r_PP.T @ r_PP)


def best_fit(
    design_NP: Floats, outcome_N: Floats, directions_PQ: Floats | None = None, start_Q: Floats | None = None
) -> Fit:
    """Maximise over the coefficients `directions_PQ @ free_Q` with a last free number >= 0; without directions, over
    all coefficients, the last one >= 0. The penalty keeps the whole model's information (Heinze and Schemper 2002).

    Fisher scoring from zero, and from `start_Q` where it is given. scipy's L-BFGS-B has the same maximum, but calls
    threaded BLAS for steps of three numbers, which took 40 times as long as one thread.
    """
    directions = np.eye(design_NP.shape[1]) if directions_PQ is None else directions_PQ
    starts = [np.zeros(directions.shape[1])] if start_Q is None else [np.zeros(directions.shape[1]), start_Q]
    fits = [_climb(design_NP, outcome_N, directions, start) for start in starts]
    return max(fits, key=lambda fit: fit.penalised_likelihood)


def _climb(design_NP: Floats, outcome_N: Floats, directions_PQ: Floats, free_Q: Floats) -> Fit:
    """The maximum that Fisher scoring with halved steps reaches from `free_Q`."""
    best = penalised_likelihood(design_NP, outcome_N, directions_PQ @ free_Q)
    for _ in range(STEPS):
        gradient_Q = directions_PQ.T @ best.gradient
        information_QQ = directions_PQ.T @ best.information @ directions_PQ
        step_Q = np.linalg.solve(information_QQ, gradient_Q)
        if free_Q[-1] == 0 and step_Q[-1] < 0:  # the bound holds the last one
            step_Q = np.append(np.linalg.solve(information_QQ[:-1, :-1], gradient_Q[:-1]), 0.0)
        if float(step_Q @ gradient_Q) < LEAST_GAIN:
            break
        for _ in range(HALVINGS):
            next_Q = free_Q + step_Q
            next_Q[-1] = max(0.0, next_Q[-1])
            moved = penalised_likelihood(design_NP, outcome_N, directions_PQ @ next_Q)
            if moved.value >= best.value - ROUNDING:
                break
            step_Q = step_Q / 2
        else:
            break
        free_Q, best = next_Q, moved
    return Fit(directions_PQ @ free_Q, best.value)
