"""The built-in claims, C01 to C25, in their order. To add one, write its entry in the file of its subject."""

from gspo_lab.claims import clipping, learning, mismatch, routing, unrecorded
from gspo_lab.claims.claim import Claim

LIBRARY: dict[str, Claim] = {
    claim.id: claim
    for claim in sorted(
        (*clipping.CLAIMS, *routing.CLAIMS, *learning.CLAIMS, *mismatch.CLAIMS, *unrecorded.CLAIMS),
        key=lambda claim: claim.id,
    )
}
