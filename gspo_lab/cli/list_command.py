from contextlib import closing
from pathlib import Path
from typing import Any

from gspo_lab.cli.shared_options import RUNS, Json, Runs, bring_up_to_date

EXAMPLES = (
    "gspo-lab list",
    "gspo-lab list --json",
)

STANDING = """\
SELECT studies.study AS study,
       CASE WHEN begun THEN COUNT(DISTINCT arm) ELSE (SELECT COUNT(*) FROM json_each(content, '$.arms')) END AS arms,
       CASE WHEN begun THEN COUNT(DISTINCT seed) ELSE json_array_length(content, '$.seeds') END AS seeds,
       COUNT(run_id) AS runs, COALESCE(SUM(state = 'finished'), 0) AS finished,
       MAX(COALESCE(at, declared_at)) AS latest, question, begun,
       GROUP_CONCAT(DISTINCT json_extract(facts, '$.origin.program')) AS recorded_by,
       json_extract(content, '$.replicates.name') AS replicates,
       json_extract(content, '$.trials_of') AS trials_of
FROM (SELECT *, EXISTS (SELECT 1 FROM runs WHERE runs.study = studies.study) AS begun FROM studies) AS studies
LEFT JOIN runs ON runs.study = studies.study AND state <> 'missing'
LEFT JOIN (SELECT run_id, MAX(at) AS at FROM statuses GROUP BY run_id) USING (run_id)
GROUP BY studies.study ORDER BY latest, studies.study"""
"""Plain rows, not frames: this command answers at once. Before its warm start is made a study has no runs: then what
it declares is told."""


ASKED = """\
SELECT run_id AS asked, kind, name, COUNT(evaluation) AS evaluations, GROUP_CONCAT(DISTINCT bench) AS benchmarks
FROM subjects LEFT JOIN evaluations USING (run_id) GROUP BY run_id ORDER BY run_id"""


def list_command(runs: Runs = RUNS, json: Json = False) -> None:
    """List studies (the latest last) and evaluated models."""
    from gspo_lab.cli.output import print_json, print_table

    rows = _rows(runs, STANDING)
    if json:
        print_json(rows)
        return
    imported = any(row["recorded_by"] for row in rows)
    linked = any(row["replicates"] for row in rows)
    trying = any(row["trials_of"] for row in rows)
    shown = [
        {
            "study": row["study"],
            **({"replicates": row["replicates"]} if linked else {}),
            **({"trials of": row["trials_of"]} if trying else {}),
            "arms x seeds": f"{row['arms']} x {row['seeds']}",
            "finished": f"{row['finished']}/{row['runs']}" if row["begun"] else _before_its_runs(runs / row["study"]),
            **({"on other hosts": told} if (told := _elsewhere(runs / row["study"])) else {}),
            "question": row["question"],
        }
        | ({"recorded by": row["recorded_by"]} if imported else {})
        for row in rows
    ]
    print_table(shown, empty="no studies yet: gspo-lab run studies/quickstart.toml")
    if asked := _rows(runs, ASKED):
        print_table(asked, empty="", title="\nmodels and servers")


def _before_its_runs(home: Path) -> str:
    """Where a study stands that is declared and has no run yet."""
    from gspo_lab.files import holder
    from gspo_lab.layout import CONDUCTOR_LOCK

    return "none yet: in its warm start or pilots" if holder(home / CONDUCTOR_LOCK) else "none begun"


def _elsewhere(home: Path) -> str:
    """How many of a study's runs are queued, running and lost where launchers have put them."""
    from collections import Counter

    from gspo_lab.launch.afar import whereabouts
    from gspo_lab.runfolder import run_folders

    told = [found["state"] for folder in run_folders(home) if (found := whereabouts(folder))]
    return ", ".join(f"{count} {state}" for state, count in Counter(told).items())


def _rows(runs: Path, query: str) -> list[dict[str, Any]]:
    database = bring_up_to_date(runs)
    if database is None:
        return []
    from gspo_lab.store.database import explained, reading

    with explained(database), closing(reading(database)) as connection:
        cursor = connection.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
