"""The benchmarks that a study's finished runs answered."""

from dataclasses import dataclass

from gspo_lab.findings.recorded import finished_runs
from gspo_lab.readings import Source, once
from gspo_lab.store.answers import read_scores


@dataclass(frozen=True)
class Asked:
    """A benchmark as it was asked: while training (`evaluation` is empty), or later of the checkpoints. `steps` are the
    evaluations that make the final score."""

    evaluation: str
    bench: str
    steps: tuple[int, ...]

    @property
    def title(self) -> str:
        """The benchmark, for people, with the later evaluation that asked it."""
        return self.bench if not self.evaluation else f"{self.bench} (later evaluation {self.evaluation})"

    @property
    def key(self) -> str:
        """A word for it that no other has, for file names and JSON."""
        return f"{self.evaluation}-{self.bench}" if self.evaluation else self.bench


@once
def asked(found: Source) -> list[Asked]:
    """By evaluation and benchmark."""
    frame = read_scores(found.evidence, found.study, None)
    frame = frame[
        frame["run_id"].isin(set(finished_runs(found).values())) & (frame["step"] > 0) & frame["answers"].notna()
    ]
    last = found.declaration.verdict.last
    out = []
    for (evaluation, bench), own in frame.groupby(["evaluation", "bench"], sort=True):
        steps = sorted(int(step) for step in own["step"].unique())
        out.append(Asked(str(evaluation), str(bench), tuple(steps[-1:] if evaluation else steps[-last:])))
    return out
