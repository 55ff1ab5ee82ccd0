"""What a verdict rests on: facts for a table, a sentence for a terminal, data for the .json;
measured error rates.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats import Comparison, TwoWay, Verdict
from gspo_lab.analysis.stats import simulation_cells as cells
from gspo_lab.analysis.stats.simulation_cells import UNEVEN, Method
from gspo_lab.analysis.stats.stability import StabilityVerdict, comparison
from gspo_lab.common.text import MINUS, capital, counted, difference, level
from gspo_lab.report.markup import NOT_MEASURED, between, format_number, h, signed, table
from gspo_lab.report.section import Section, folded
from gspo_lab.report.words import because, label, reason_text, sentence


def facts(verdict: Verdict, planned: int, wider: TwoWay | None) -> dict[str, str]:
    """Name and value of each fact, for the table below the answer."""
    compared = comparison(verdict)
    stability = isinstance(verdict, StabilityVerdict)
    paired = compared.paired
    what = (
        "drop from best, relative to the gain, smaller than that of"
        if stability
        else "difference to"
    )
    missing = f"{NOT_MEASURED}: {paired.reason or 'too few pairs'}"
    out = {
        f"{what} {verdict.baseline}": signed(paired.estimate, paired.low, paired.high),
        f"{level(compared.alpha)} interval, these problems": between(
            paired.low, paired.high, missing, compared.margin
        ),
    }
    if adjusted := _adjusted(compared):
        out["interval of the verdict"] = adjusted
    if isinstance(verdict, StabilityVerdict):
        beside = {
            "the same in points of score": verdict.points,
            "difference of final scores": verdict.final,
        }
        out |= {name: signed(test.estimate, test.low, test.high) for name, test in beside.items()}
        for arm, share in zip(
            (verdict.subject, verdict.baseline), reversed(verdict.unstable), strict=True
        ):
            out["unstable runs" if arm == verdict.subject else f"unstable runs of {arm}"] = (
                f"{share.k} of {share.n}"
            )
    else:
        lacking = f"{NOT_MEASURED}: {'too few pairs' if wider is None else wider.reason}"
        lacking = "not computed for a contrast" if verdict.question == "contrast" else lacking
        ends = (None, None) if wider is None else (wider.low, wider.high)
        out["interval, new problems too"] = between(*ends, lacking, compared.margin)
    return out | {
        "margin of equivalence": f"±{compared.margin:.3g}",
        "pairs of runs": f"{paired.n} of {planned}",
        "sd of a pair": format_number(paired.sd, 2),
        "sd by all arms": format_number(paired.pooled_sd, 2),
        "sampling sd": format_number(paired.items_sd, 2),
        "smallest detectable effect": _detectable(compared),
    }


def notes(verdict: Verdict, missing: Sequence[str]) -> str:
    """What limits a verdict and what its pairs show one by one."""
    compared = comparison(verdict)
    paired = compared.paired
    # That one seed turns the sign already stands in a score's sentence.
    told = "one seed turns the sign" if compared is verdict else ""
    out = [reason_text(note) for note in compared.notes if note.code != told]
    if compared.word == "not resolved" and compared.more_seeds:
        more = counted(compared.more_seeds, "more seed")
        out.append(f"about {more} would settle it at the spread seen, itself uncertain")
    if compared is verdict and (uneven := uneven_line(compared)) is not None:
        out.append(uneven)
    if paired.n:
        ahead = sum(apart > 0 for apart in paired.differences)
        out.append(f"{compared.subject} is ahead in {ahead} of {paired.n} pairs")
        out.append(
            f"every pair's difference: {', '.join(signed(apart) for apart in paired.differences)}"
        )
    if paired.low is None and paired.n:
        out.append("these numbers are descriptive; they have no verdict")
    if missing:
        out.append(f"runs without a final score: {', '.join(missing)}")
    return " ".join(f"{capital(note)}." for note in out)


def numbers(verdict: Verdict, wider: TwoWay | None = None) -> str:
    """The verdict's numbers in one sentence, for a terminal or a Markdown line; `wider` holds for
    new problems too.
    """
    compared = comparison(verdict)
    stability = isinstance(verdict, StabilityVerdict)
    paired = compared.paired
    if paired.estimate is None:
        return f"Difference: {NOT_MEASURED}."
    first = compared.subject
    second = compared.baseline
    ends = (paired.low, paired.high)
    drop = f"Drop from best of {first}, relative to the gain, smaller than that of {second} by"
    name = drop if stability else f"{first} {MINUS} {second}:"
    parts = [f"{name} {difference(paired.estimate, ends, compared.alpha, compared.margin)}"]
    if adjusted := _adjusted(compared):
        parts.append(f"interval of the verdict {adjusted}")
    if wider is not None and wider.low is not None and not stability:
        parts.append(f"new problems too {between(wider.low, wider.high, None, compared.margin)}")
    parts += [f"margin ±{compared.margin:.3g}", counted(paired.n, "pair")]
    if compared.smallest_detectable is not None:
        parts.append(
            f"a true difference of {_detectable(compared)} would be found in 80 of 100 such studies"
        )
    uneven = uneven_line(compared) if compared is verdict else None
    return ", ".join(parts) + "." + (f" {capital(uneven)}." if uneven else "")


def _adjusted(verdict: Comparison) -> str | None:
    if verdict.interval is None or verdict.word == "withheld" or verdict.level >= verdict.alpha:
        return None
    return f"{between(*verdict.interval, None, verdict.margin)} ({level(verdict.level)})"


def _detectable(verdict: Comparison) -> str:
    """With where it lies for any true spread that the pairs allow."""
    if verdict.detectable_range is None:
        return format_number(verdict.smallest_detectable, 2)
    low, high = verdict.detectable_range
    return (
        f"{format_number(verdict.smallest_detectable, 2)} ({format_number(low, 2)} to"
        f" {format_number(high, 2)})"
    )


def head(verdict: Verdict) -> dict[str, Any]:
    """What every surface states of a verdict, for the .json."""
    names = ("question", "subject", "baseline", "word", "direction", "estimate", "level")
    return {
        **_fields(verdict, names),
        "label": label(verdict),
        "sentence": sentence(verdict),
        "about": reason_text(verdict.about).strip() if verdict.about else None,
        "rests_on": verdict.interval,
        "reason": because(verdict),
        "reasons": [reason.code for reason in verdict.reasons],
        "reading": f"{verdict.question}.difference",
    }


def summary(verdict: Verdict, wider: TwoWay | None = None) -> dict[str, Any]:
    """The verdict and all of its numbers for the .json."""
    limits = ("estimate", "low", "high")
    if isinstance(verdict, StabilityVerdict):
        drop = {
            **_fields(verdict.drop.paired, limits),
            "margin": verdict.margin,
            "word": verdict.drop.word,
        }
        final = {
            "loses_less_points": _fields(verdict.points, limits),
            "final": _fields(verdict.final, limits),
        }
        fell = [list(proportion) for proportion in verdict.unstable]
        return {**head(verdict), "fell": fell, "p": verdict.p, "loses_less": drop, **final}
    verdict = comparison(verdict)
    paired = verdict.paired
    uneven = uneven_line(verdict)
    names = (
        "better",
        "margin",
        "alpha",
        "smallest_detectable",
        "seeds_for_margin",
        "seeds_for_equivalence",
    )
    return {
        **head(verdict),
        **_fields(paired, (*limits, "p", "sd")),
        **_fields(verdict, names),
        "new_problems_too": None if wider is None or wider.low is None else [wider.low, wider.high],
        "sd_by_all_arms": paired.pooled_sd,
        "sd_by_answers": paired.items_sd,
        "pairs": paired.n,
        "differences": list(paired.differences),
        "arms_judged_together": verdict.family,
        "looks": list(verdict.rule.looks) if len(verdict.rule.looks) > 1 else [],
        "smallest_detectable_range": verdict.detectable_range,
        "collapsed": (
            None if verdict.collapsed is None else [list(share) for share in verdict.collapsed]
        ),
        "leave_one_out": None if verdict.leave_one_out is None else list(verdict.leave_one_out),
        "unstable": (
            None if verdict.unstable is None else [list(counts) for counts in verdict.unstable]
        ),
        "notes": [*map(reason_text, verdict.notes), *([uneven] if uneven else [])],
    }


def _fields(of: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


HEAD = ("kind of study", "pairs", "reading", "share of studies", "99 % interval")
MUST_FAIL = "must fail"
ALPHA = 0.05
"""The simulated studies were judged at this level; of others nothing was measured."""


@functools.cache
def record() -> dict[str, Any]:
    """What `gspo-lab certify --rule --json` printed of the code of this version:

    `calibration.json` in this package.
    """
    return dict(
        json.loads(Path(__file__).with_name("calibration.json").read_text(encoding="utf-8"))
    )


def calibration(study: Source) -> Section | None:
    """The rates of this report's rules, and of common analyses that fail; None where no score
    decides.
    """
    if study.declaration.primary is None or len(study.arms) < 2:
        return None
    about = (
        f"{record()['studies']:,} simulated studies a row whose truth is known, judged by the code"
        " that judged this study. A valid rule is wrong in 5 % of them or fewer; the rows of true"
        " equivalence show how often the rule says so. gspo-lab certify --rule runs it all again."
    )
    rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for row in record()["rows"]:
        rate, *ends = (_percent(row[name]) for name in ("rate", "rate_low", "rate_high"))
        rows[row["expectation"] == MUST_FAIL].append(
            (row["cell"], str(row["n"]), row["method"], rate, " to ".join(ends))
        )
    body = (
        h("p", about),
        table(HEAD, rows[True], caption="Common analyses with inflated false-positive rates"),
        folded(f"This report's rules, {len(rows[False])} rows", table(HEAD, rows[False])),
    )
    return Section("calibration", "Calibration", body)


def calibration_lines(
    verdicts: Sequence[Comparison], contrast: Comparison | None = None
) -> list[str]:
    """Per kind of verdict, of a contrast, of several arms and of looks, its own measured rate in
    one line each; none where nothing was measured (n < 3, another alpha)."""
    n = max(verdict.paired.n for verdict in verdicts)
    alpha = verdicts[0].alpha
    family = len(verdicts)
    looks = verdicts[0].rule.looks
    lines = (
        []
        if contrast is None
        else [_contrast_line(contrast.paired.n, alpha, looked=len(looks) > 1)]
    )
    lines.append(calibration_line(n, alpha))
    if family > 1:
        lines.append(
            _row_line(n, alpha, cells.HOLM, f"with any of {family} arms called better", arms=family)
        )
    if len(looks) > 1:
        lines.append(
            _row_line(looks[-1], alpha, cells.LOOKED, "over all looks (after 5 and 8 seeds)")
        )
    if any(verdict.word == "practically equivalent" for verdict in verdicts):
        lines.append(_equivalence_line(n, alpha))
    return [line for line in lines if line]


def keeps_alpha(verdicts: Sequence[Comparison]) -> bool:
    """Whether no error rate that `calibration_lines` states lies above alpha."""
    n = max(verdict.paired.n for verdict in verdicts)
    alpha = verdicts[0].alpha
    looks = verdicts[0].rule.looks
    methods = [(cells.PAIRED, n), (cells.UNEVEN_PAIRED, n), (cells.AT_MARGIN, n)]
    methods += ([(cells.HOLM, n)] if len(verdicts) > 1 else []) + (
        [(cells.LOOKED, looks[-1])] if len(looks) > 1 else []
    )
    rates = [row["rate"] for method, pairs in methods for row in _rows(method, pairs, alpha)]
    return max(rates, default=0.0) <= alpha


def calibration_line(n: int, alpha: float) -> str | None:
    """The plain interval's false alarms at `n` pairs in one line; None where it was never
    measured.
    """
    rows = [row for row in _rows(cells.PAIRED, n, alpha) if row["cell"].startswith("score")]
    if not rows:
        return None
    shares = {row["cell"]: row["rate"] for row in rows}
    normal = shares.pop("score, normal")
    uneven = ""
    if (rates := _uneven_rates(n, alpha, cells.UNEVEN_PAIRED)) is not None:
        uneven = (
            f"; {_percent(rates[1])} where 15 % of the runs of only one arm are unstable,"
            f" {_percent(rates[2])} where only one arm is skewed ({rates[0]} pairs, means equal)"
        )
    return (
        f"Calibrated: {_percent(normal)} false alarms in {record()['studies']:,} simulated studies"
        f" of {rows[0]['n']} pairs without a difference, at most {_percent(max(shares.values()))}"
        f" where both arms are alike skewed, heavy-tailed or collapsing, or one is noisier{uneven}"
    )


def uneven_line(verdict: Comparison) -> str | None:
    """Beside a "better" that rests on arms with unstable runs: how often it is said there though
    the means are equal.

    No rule on few pairs keeps alpha there: where none of an arm's runs happens to be unstable, its
    scores look like those of a better arm. None for other words, without unstable runs, and where
    nothing was measured.
    """
    if verdict.better is None or not any(k for k, _ in verdict.unstable or ()):
        return None
    looks = verdict.rule.looks
    methods = (
        cells.UNEVEN_HOLM if verdict.family > 1 else cells.UNEVEN_PAIRED,
        cells.UNEVEN_LOOKED,
    )
    if verdict.question == "contrast":
        methods = (cells.UNEVEN_CONTRAST, cells.UNEVEN_CONTRAST_LOOKED)
    elif verdict.rule.order:
        methods = (cells.UNEVEN_ORDER, cells.UNEVEN_ORDER_LOOKED)
    method = methods[len(looks) > 1]
    rates = _uneven_rates(looks[-1] if len(looks) > 1 else verdict.paired.n, verdict.alpha, method)
    if not rates:
        return None
    n, unstable, *skewed = rates
    return (
        f"runs are unstable here: in simulated studies of {n} pairs with equal means 'better' is"
        f" said in {_percent(unstable)} where 15 % of one arm's runs are unstable"
        + "".join(f", in {_percent(rate)} where one arm is skewed" for rate in skewed)
    )


def _uneven_rates(n: int, alpha: float, method: Method) -> tuple[Any, ...] | None:
    """Pairs, and the rates where one arm alone has unstable runs and, if simulated, where its
    scores are skewed.
    """
    rows = _rows(method, n, alpha)
    rates = [row["rate"] for name in UNEVEN for row in rows if name in row["cell"]]
    return (rows[0]["n"], *rates) if rows else None


def _row_line(n: int, alpha: float, method: Method, what: str, arms: int = 0) -> str | None:
    """The worst of a method's rows; of cells that name a number of arms, those nearest to
    `arms`.
    """
    rows = _rows(method, n, alpha)
    if arms and rows:
        nearest = min(
            (int(row["cell"].split()[0]) for row in rows), key=lambda size: abs(size - arms)
        )
        rows = [row for row in rows if int(row["cell"].split()[0]) == nearest]
        what += f" (simulated with {nearest} arms)" if nearest != arms else ""
    return (
        f"{_percent(max(row['rate'] for row in rows))} false alarms {what}, {rows[0]['n']} pairs"
        if rows
        else None
    )


def _contrast_line(n: int, alpha: float, *, looked: bool) -> str | None:
    method = cells.UNEVEN_CONTRAST_LOOKED if looked else cells.UNEVEN_CONTRAST
    even = _rows(method._replace(name=method.name.removesuffix(", means equal")), n, alpha)
    uneven = _rows(method, n, alpha)
    return (
        None
        if not even
        else (
            f"{_percent(even[0]['rate'])} false alarms by a contrast of four arms, {_percent(uneven[0]['rate'])} where "  # noqa: E501
            f"15 % of one arm's runs are unstable, {even[0]['n']} pairs"
        )
    )


def _equivalence_line(n: int, alpha: float) -> str | None:
    wrong = _rows(cells.AT_MARGIN, n, alpha)
    right = [row["rate"] for row in _rows(cells.AT_ZERO, n, alpha)]
    return (
        None
        if not wrong
        else (
            f"'Equivalent within the margin' was concluded of arms that differ by the margin in at most "  # noqa: E501
            f"{_percent(max(row['rate'] for row in wrong))} of the studies of {wrong[0]['n']} pairs, of arms that do not "  # noqa: E501
            f"differ in {_percent(min(right))} to {_percent(max(right))}, by their noise"
        )
    )


def _rows(method: Method, n: int, alpha: float) -> list[dict[str, Any]]:
    """A method's rows with the most pairs that are no more than `n`; none where alpha is not the
    simulated one.
    """
    rows = [
        row
        for row in record()["rows"]
        if row["method"] == method.name and row["n"] <= n and alpha == ALPHA
    ]
    return [row for row in rows if row["n"] == max(row["n"] for row in rows)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
