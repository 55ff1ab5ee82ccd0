"""Claims: statements fixed before a run, and what its evidence says of each. `LIBRARY` has those of the literature."""

from gspo_lab.claims.answered import answer
from gspo_lab.claims.claim import Claim, Counter, Result, Word
from gspo_lab.claims.estimates import Estimate, Region
from gspo_lab.claims.judge import judge
from gspo_lab.claims.library import LIBRARY

__all__ = ["LIBRARY", "Claim", "Counter", "Estimate", "Region", "Result", "Word", "answer", "judge"]
