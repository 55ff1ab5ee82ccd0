"""The process that compares mathematical expressions: `python -m gspo_lab.tasks.benchmarks.math_worker CPU_SECONDS`.

A line in is JSON, `["gold", "answer"]`; a line out is JSON, one of `"equal"`, `"differs"`, `"gold"` (the gold parses to
nothing), `"answer"` (the answer does) and `"memory"`. The kernel ends the process where one pair takes more CPU time
than allowed; nothing inside it could, since sympy may be in one long call.
"""

import json
import os
import resource
import sys
from typing import Any

MEMORY_BYTES = 4 << 30


def main() -> None:
    """Take limits upon itself, then compare expressions as they come in."""
    cpu_seconds = int(sys.argv[1])
    # Whatever the packages print goes nowhere; replies have a descriptor of their own.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    boxed = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(text: str) -> list[Any]:
        # Its own timeouts are alarms, which a long call in C outlasts: the kernel's limit stands in for them.
        expressions: list[Any] = parse(
            f"\\boxed{{{text}}}", extraction_config=boxed, fallback_mode="no_fallback", parsing_timeout=None
        )
        return expressions

    def compared(gold: str, answer: str) -> str:
        try:
            right = read(gold)
            if not right:
                return "gold"
            stated = read(answer)
            if not stated:
                return "answer"
            return "equal" if verify(right, stated, timeout_seconds=None) else "differs"
        except MemoryError:
            return "memory"

    print(json.dumps("ready"), file=replies, flush=True)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + cpu_seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        print(json.dumps(compared(*json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
