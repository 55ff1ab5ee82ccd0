"""Size of the gradient, with the spikes that a mean would hide."""

from typing import TYPE_CHECKING

from gspo_lab.report.frames import arms, curve, value
from gspo_lab.report.markup import h, markdown_table, number, table
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

HEAD = ["arm", "median", "largest", "where", "updates that were not finite"]


def gradients(evidence: "Evidence", study: str) -> Section | None:
    """Gradient norm before clipping: bucket means, with an envelope up to the largest value."""
    chart = curve(
        evidence,
        study,
        "updates",
        "grad_norm",
        id="m-grad-norm",
        title="Gradient norm over training",
        unit="L2 norm before clipping",
        log=True,
        envelope=True,
        note="Mean over the step's updates.",
    )
    frame = evidence.updates(study, ["grad_norm", "nonfinite"])
    rows, data = [], {}
    for arm in arms(evidence, study):
        own = frame[frame["arm"] == arm]
        norms = own["grad_norm"].dropna()
        where = own.iloc[int(own["grad_norm"].argmax())] if len(norms) else None
        place = "" if where is None else f"seed {where['seed']}, step {where['step']}, mini-batch {where['minibatch']}"
        nonfinite = int(own["nonfinite"].sum()) if own["nonfinite"].notna().any() else None
        median, largest = (value(norms.median()), value(norms.max())) if len(norms) else (None, None)
        rows.append([arm, number(median), number(largest), place, number(nonfinite)])
        data[arm] = {"median": median, "largest": largest, "largest_at": place, "nonfinite_updates": nonfinite}
    body = (chart, table(HEAD, rows, caption=h("span", "Over all seeds and updates")))
    return Section("gradients", "Gradient norm", body, {"arms": data}, markdown_table(HEAD, rows))
