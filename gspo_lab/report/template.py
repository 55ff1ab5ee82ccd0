"""The one template of all figures, as Plotly JSON, in either scheme."""

from typing import Any

from gspo_lab.report.labels import BOTTOM, TOP
from gspo_lab.report.palette import COLOURS

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'


def template(scheme: dict[str, str]) -> dict[str, Any]:
    """Colours, type, axes and margins. No letters or superscripts for powers of ten: "500µ" is no share, and Plotly
    sets superscripts by a style of their own, which the page's policy forbids."""
    axis = {
        "gridcolor": scheme["line"],
        "linecolor": scheme["line"],
        "zerolinecolor": scheme["line"],
        "exponentformat": "e",
        "zeroline": False,
        "title": {"font": {"size": 12.5}, "standoff": 8},
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 12, "color": scheme["soft"]},
            "paper_bgcolor": scheme["paper"],
            "plot_bgcolor": scheme["paper"],
            "colorway": [scheme[f"a{i}"] for i in range(COLOURS)],
            "margin": {"l": 58, "r": 12, "t": TOP, "b": BOTTOM},
            "hoverlabel": {"align": "left", "namelength": -1, "bgcolor": scheme["paper"], "bordercolor": scheme["line"],
                           "font": {"color": scheme["ink"], "size": 12}},
            "legend": {"orientation": "h", "traceorder": "normal", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": axis,
            "yaxis": {**axis, "automargin": True},
        },
        "data": {"bar": [{"textfont": {"color": scheme["ink"]}, "insidetextfont": {"color": scheme["ink"]}}]},
    }  # fmt: skip
