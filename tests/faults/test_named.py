"""The tests that docs/development/fixed-faults.md names for what was wrong once are there, and so
are the attacks.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`")


def test_every_test_and_attack_that_is_named_is_there() -> None:
    page = (ROOT / "docs/development/fixed-faults.md").read_text()
    file, seen = "", 0
    for path, test in NAMED.findall(page):
        file = path or file
        if test:
            seen += 1
            assert f"def {test}(" in (ROOT / file).read_text(), (file, test)
    assert seen > 40
    attacks = (ROOT / "tests" / "sandbox" / "attacks.py").read_text()
    for attack in re.findall(r'"([^"]+)"', page):
        assert re.search(rf"^== {attack}( \(|$)", attacks, re.M), attack
