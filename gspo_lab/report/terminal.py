"""The answer's view on a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gspo_lab.report.templating import NONE, percent
from gspo_lab.report.views.answer import AnswerView


def print_answer(view: AnswerView, console: Console) -> None:
    """Print the answer, the arms, then the details and the next command."""
    answer = view.answer
    console.print(answer.said, style="bold", markup=False, highlight=False)
    console.print(f"{answer.rests_on}\n", markup=False, highlight=False)
    console.print(arms_table(view))
    console.print("")
    for line in (*view.details, f"Next: {answer.next}"):
        console.print(line, markup=False, highlight=False)


def arms_table(view: AnswerView) -> Table:
    """The arms: runs, scores, and what was unstable, clipped and not graded. Of a sweep the
    differences at each value stand for the scores of single seeds.
    """
    swept = {row.subject: row.difference_text for row in view.rows_of_sweep}
    failing = any(arm.not_graded for arm in view.arms.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", overflow="fold")
    numbers = ["runs", "start, best, final", "difference" if swept else "final by seed", "unstable"]
    numbers.append("clipped: tokens, gradient")
    if failing:
        numbers.append("not graded")
    for title in numbers:
        table.add_column(title, justify="right")
    for name, arm in view.arms.items():
        by_seed = [NONE if score is None else f"{score:.3f}" for score in arm.by_seed.values()]
        cells = [f"{arm.counted}/{arm.runs}", arm.scores, swept.get(name) or " ".join(by_seed)]
        cells += [arm.unstable_text, arm.clipped_text]
        if failing:
            cells.append(NONE if arm.not_graded is None else percent(arm.not_graded))
        table.add_row(Text(name), *cells)
    return table
