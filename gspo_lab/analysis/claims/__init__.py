"""Claims: statements fixed before a run, and what its evidence says of each.

`LIBRARY` has those of the literature.
"""

from gspo_lab.analysis.claims.claim import Claim
from gspo_lab.analysis.claims.estimates import Estimate
from gspo_lab.analysis.claims.evaluate_claims import Result, answer, judge
from gspo_lab.analysis.claims.library import LIBRARY
from gspo_lab.analysis.claims.published import UNTESTED

__all__ = ["LIBRARY", "UNTESTED", "Claim", "Estimate", "Result", "answer", "judge"]
