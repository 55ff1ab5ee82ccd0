"""Published benchmarks as tasks: where their problems come from, how they are asked, how answers
are graded.

docs/reference/benchmarks.md says for each of them the source, the count, the rule, the prompt and
the traps.
"""
