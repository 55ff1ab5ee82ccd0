from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of

EXAMPLES = "Examples:  gspo-lab list   |   gspo-lab list --json"


def list_studies(runs: Runs = RUNS, json: Json = False) -> None:
    """List the studies that were run, the latest last."""
    from gspo_lab.cli.output import print_json, print_table

    with evidence_of(runs) as evidence:
        rows = []
        for name in evidence.studies():
            frame = evidence.runs(name)
            states = frame["state"].value_counts()
            rows.append(
                {
                    "study": name,
                    "arms": int(frame["arm"].nunique()),
                    "seeds": int(frame["seed"].nunique()),
                    "runs": len(frame),
                    **{str(state): int(count) for state, count in states.items()},
                    "question": evidence.study(name).get("question", ""),
                }
            )
    if json:
        print_json(rows)
    else:
        shown = [
            {
                "study": row["study"],
                "arms x seeds": f"{row['arms']} x {row['seeds']}",
                "finished": f"{row.get('finished', 0)}/{row['runs']}",
                "question": row["question"],
            }
            for row in rows
        ]
        print_table(shown, empty="no studies yet: gspo-lab run studies/quickstart.toml")
