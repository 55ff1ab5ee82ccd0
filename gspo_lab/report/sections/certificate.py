"""The certificate: what was checked to say that the runs are matched, check by check."""

from typing import Any

from gspo_lab.findings.matched import study_certificate
from gspo_lab.matching import Certificate
from gspo_lab.matching.certificate import WORST_FIRST, grouped
from gspo_lab.matching.pairing import EQUAL, UNDECLARED
from gspo_lab.readings import Source
from gspo_lab.report.markup import Html, h, markdown_table, plain, table
from gspo_lab.report.section import Section

INTRODUCTION = (
    "Two runs with one seed are a pair if nothing differs between them but what their arms declare. Each check "
    "compares what both recorded of themselves; until the first update, the runs of a pair must do the very same."
)


def certificate(found: Source) -> Section | None:
    """A table of check and state over all pairs, every pair's detail folded, and what was accepted with its reason."""
    matched = study_certificate(found)
    if not matched.pairs:
        return None
    states = matched.states()
    columns = [state for state in WORST_FIRST[::-1] if any(count[state] for count in states.values())]
    rows = [[name, *(_count(count[state], state) for state in columns)] for name, count in states.items()]
    details = [
        [name, state, text, where or "all pairs"] for name in states for state, text, where in _found(matched, name)
    ]
    odd = [row for row in details if row[1] == UNDECLARED]
    body: list[Html] = [h("p", INTRODUCTION)]
    body.append(h("p", matched.summary, class_="warn" if matched.undeclared else None))
    body += [h("p", f"Mismatch accepted on {one.at}: {one.reason}", class_="warn") for one in matched.acceptances]
    if odd:
        body.append(table(["check", "", "what differs", "pairs"], odd, caption="Undeclared differences"))
    caption = f"Number of pairs in each state ({len(matched.pairs)} pairs: every two arms, every seed; the lock is one)"
    body.append(table(["check", *columns], rows, caption=caption))
    body.append(h("details", h("summary", "What each check saw"), table(["check", "state", "seen", "pairs"], details)))
    markdown = [plain(matched.headline), markdown_table(["check", "state", "seen", "pairs"], details)]
    markdown += [f"Mismatch accepted on {plain(one.at)}: {plain(one.reason)}" for one in matched.acceptances]
    return Section("certificate", "Certificate", tuple(body), _data(matched), "\n\n".join(markdown))


def _found(matched: Certificate, name: str) -> list[tuple[str, str, str]]:
    return [(str(state), text, where) for state, text, where in grouped(matched.of(name))]


def _count(count: int, state: str) -> Any:
    shown = str(count) if count else ""
    return h("span", shown, class_="differs") if count and state == UNDECLARED else shown


def _data(matched: Certificate) -> dict[str, Any]:
    """The certificate's own JSON; of equal checks the pairs are counted instead of listed."""
    data = matched.to_json()
    data["states"] = {name: {str(state): n for state, n in count.items()} for name, count in matched.states().items()}
    for pair in data["pairs"]:
        pair["checks"] = [check for check in pair["checks"] if check["state"] != EQUAL]
    return data
