"""The lab in Python, read-only: what a study recorded and what was found in it, as pandas frames.

    import gspo_lab

    with gspo_lab.open("runs") as lab:
        study = lab.study("moe_stability")
        study.scores()
        study.records("clip_fraction_tokens")

The numbers are those that the report is written from; nothing here computes one. A frame's columns
are told in the method that makes it; what was not measured is NaN, None or absent, never 0.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

from gspo_lab.analysis import readings
from gspo_lab.analysis.claims import answer, judge
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.findings.stability import verdicts
from gspo_lab.analysis.stats.stability import comparison
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import database_of
from gspo_lab.common.registry import nearest, unlisted
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.answers import read_scores
from gspo_lab.recording.store.records import read_steps, read_updates
from gspo_lab.recording.store.schema import RECORD_TABLES
from gspo_lab.report.templating import statement


class Lab:
    """A folder of runs, as its database stood when it was opened; open it again to see what came in
    later.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._studies: dict[str, Study] = {}

    @classmethod
    def open(cls, runs: str | Path = "runs") -> "Lab":
        """Open the folder's database, which every command but this brings up to date.

        LabError where there is none.
        """
        folder = Path(runs)
        if not database_of(folder).exists():
            raise LabError(
                f"no database {database_of(folder)}: gspo-lab show --runs {folder} makes it from"
                " the runs"
            )
        return cls(Evidence.open(database_of(folder), folder))

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the database go; frames that were made stay."""
        self._evidence.close()

    def studies(self) -> DataFrame:
        """A row per study, the one with the most recent activity last.

        study; question; arms (names, with commas); runs (count of those begun or done); finished
        (count).
        """
        rows = []
        for name in self._evidence.studies():
            source = self.study(name).source
            recorded = readings.runs(source)
            declared = source.declaration
            finished = sum(run.finished for run in recorded)
            rows.append(
                (name, declared.question, ", ".join(declared.arms), len(recorded), finished)
            )
        return DataFrame(rows, columns=["study", "question", "arms", "runs", "finished"])

    def study(self, name: str) -> "Study":
        """One study. LabError for one that the database lacks."""
        if name not in self._studies:
            self._evidence.study(name)
            self._studies[name] = Study(readings.Source(self._evidence, name))
        return self._studies[name]


class Study:
    """One study's frames. `source` is what they are read from, for functions of
    `gspo_lab.analysis.readings` and `gspo_lab.analysis.findings`."""

    def __init__(self, source: readings.Source) -> None:
        self.source = source

    def runs(self, bench: str | None = None) -> DataFrame:
        """A row per run: what became of it, on a benchmark (default: the one that decides).

        arm; seed; state; start (score before training, share 0 to 1); final (score at the end by
        the declared rule, share; None while unfinished); gain (final - start); best (highest that
        final would have been at any step); nonfinite (updates); errors (answers not graded);
        collapsed, unstable (bool; NA: not judged, for too few steps or evaluations).
        """
        names = ("arm", "seed", "state", "start", "final", "gain", "best", "nonfinite", "errors")
        ended = outcomes(self.source, bench or self.source.declaration.primary)
        frame = DataFrame(
            [[getattr(run, name) for name in names] for run in ended], columns=list(names)
        )
        frame["collapsed"] = Series(
            [run.collapsed if run.judged else None for run in ended], dtype="boolean"
        )
        frame["unstable"] = Series(
            [run.unstable if run.stability_judged else None for run in ended], dtype="boolean"
        )
        return frame

    def scores(self) -> DataFrame:
        """A row per run, benchmark and evaluated step, of what runs recorded as they trained.

        run_id; arm; seed; bench; step (rollout batches done); problems, answers (counts); score
        (mean over problems of the share of right answers, 0 to 1); errors (answers not graded, left
        out of the score); truncated (answers cut at the limit).
        """
        return read_scores(self.source.evidence, self.source.study).drop(columns="evaluation")

    def records(self, metric: str, *further_metrics: str) -> DataFrame:
        """A row per rollout batch or per update, whichever the metrics are recorded of, and a
        column per metric.

        run_id; arm; seed; step (from 0); of updates also minibatch (from 0; -1: a mean that another
        program logged). `frame.attrs["units"]` and `frame.attrs["meanings"]` have each metric's
        (docs/reference/metrics.md). LabError for a name that is no metric, or metrics of both kinds
        at once.
        """
        metrics = [metric, *further_metrics]
        steps = RECORD_TABLES["steps"]
        updates = RECORD_TABLES["updates"]
        recorded = {*steps.names, *updates.names}
        if unknown := [name for name in metrics if name not in recorded]:
            raise LabError(
                f"no metric '{unknown[0]}'{nearest(unknown[0], recorded)};"
                " docs/reference/metrics.md has all"
            )
        of_steps = {*metrics} <= {*steps.names}
        if not of_steps and not {*metrics} <= {*updates.names}:
            raise LabError(
                f"{', '.join(metrics)}: some are of rollout batches, some of updates; ask for them"
                " apart"
            )
        frame = (read_steps if of_steps else read_updates)(
            self.source.evidence, self.source.study, metrics
        )
        columns = {name: (steps if of_steps else updates).column(name) for name in metrics}
        frame.attrs["units"] = {name: column.unit for name, column in columns.items()}
        frame.attrs["meanings"] = {name: column.meaning for name, column in columns.items()}
        return frame

    def reading(
        self,
        metric: str,
        *,
        steps: str = "settled",
        minibatch: str = "all",
        reduce: str = "mean",
        weight: str = "own",
        seeds: str = "finished",
    ) -> DataFrame:
        """A row per run: one number of its record, the very one that the report shows under that
        window.

        arm; seed; value (None: not measured); weight (what the mean was made of). `steps` is
        "settled" (after the learning rate's warm-up), "all", "baseline", "step0" or "last";
        `minibatch` "all", "first", "later" or "final"; `reduce` "mean", "largest", "median",
        "peak", "area" or "last-fifth"; `weight` "own" (see metrics.md) or "rows"; `seeds`
        "recorded", "finished", "deciding" or "decided". `frame.attrs["reading"]` is the reading's
        stable key. LabError for any other word, or an unknown metric.
        """
        window = readings.Window(
            readings.Steps(_word("steps", steps, readings.Steps)),
            readings.Minibatch(_word("minibatch", minibatch, readings.Minibatch)),
        )
        reduction = readings.Reduce(_word("reduce", reduce, readings.Reduce))
        chosen = readings.Reading(
            metric, window, reduction, readings.Weight(_word("weight", weight, readings.Weight))
        )
        deciding = readings.deciding(self.source.declaration)
        sets = {"recorded": readings.RECORDED, "finished": readings.FINISHED, "deciding": deciding}
        _word("seeds", seeds, (*sets, "decided"))
        counted = decision(self.source).runs if seeds == "decided" else sets[seeds]
        values = readings.read(self.source, chosen)
        rows = [(run.arm, run.seed, *values[run.id]) for run in readings.runs(self.source, counted)]
        frame = DataFrame(rows, columns=["arm", "seed", "value", "weight"])
        frame.attrs |= {"reading": chosen.key, "seeds": counted.label(), "unit": chosen.column.unit}
        return frame

    def verdicts(self) -> DataFrame:
        """A row per verdict on the declared question; empty where no score can decide.

        arm; baseline; question (score, stability, contrast); word (the verdict); direction (1 for
        the arm, -1 against it, else 0); label (the verdict with its subject); n (pairs of seeds);
        estimate (arm - baseline: of final scores, or how much smaller the drop from best is,
        relative to the gain); low, high (its 1 - alpha interval); p (two-sided); margin
        (differences within +- it are equivalent); detectable (smallest true difference that n seeds
        would have seen); reason (why there is no verdict); sentence.
        """
        rule = ("baseline", "question", "word", "direction")
        paired = ("n", "estimate", "low", "high", "p")
        rows: list[list[Any]] = [
            [
                verdict.subject,
                *(getattr(verdict, name) for name in rule),
                statement("label", verdict),
                *(getattr(verdict.paired, name) for name in paired),
                verdict.margin,
                comparison(verdict).smallest_detectable,
                verdict.because or None,
                statement("sentence", verdict),
            ]
            for verdict in verdicts(self.source).values()
        ]
        names = ["arm", *rule, "label", *paired, "margin", "detectable", "reason", "sentence"]
        return DataFrame(rows, columns=names)

    def claims(self, every: bool = False) -> DataFrame:
        """A row per declared claim; with `every` the rest of the library too, descriptive.

        claim (its id); word; statement; reason; p (its own), p_adjusted (Holm's, over the declared
        ones); declared.
        """
        rows = [
            [
                result.claim.id,
                result.word,
                result.claim.statement,
                result.verdict.because,
                result.p,
                result.p_adjusted,
                result.declared,
            ]
            for result in judge(self.source, every=every)
        ]
        return DataFrame(
            rows, columns=["claim", "word", "statement", "reason", "p", "p_adjusted", "declared"]
        )

    def certificate(self) -> DataFrame:
        """A row per check and pair of runs: whether they were matched.

        check; arms (two, "a / b") and seed of the pair, missing where the check is of the whole
        study; state; detail. `frame.attrs` has `headline` and `ok` (whether nothing forbids a
        verdict).
        """
        certificate = study_certificate(self.source)
        rows = []
        for name in certificate.states():
            for pair, check in certificate.of(name):
                arms = None if pair is None else " / ".join(pair.arms)
                seed = None if pair is None else pair.seed
                rows.append([check.name, arms, seed, str(check.state), check.detail])
        frame = DataFrame(rows, columns=["check", "arms", "seed", "state", "detail"]).astype(
            {"seed": "Int64"}
        )
        frame.attrs |= {"headline": certificate.headline, "ok": certificate.ok}
        return frame

    def answer(self) -> str:
        """The three lines that `gspo-lab show` and the report open with."""
        answered = answer(self.source)
        said = statement("answer", answered)
        return "\n".join((said, statement("grounds", answered), f"Next: {answered.command}"))


def _word(name: str, word: str, choices: Iterable[str]) -> str:
    words = [str(word_) for word_ in choices]
    if word not in words:
        raise LabError(f"{name}={unlisted(word, words, 'it is one of')}")
    return word
