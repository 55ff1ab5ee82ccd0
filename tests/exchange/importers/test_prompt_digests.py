"""Prompts in a log prove that two imported runs saw the same ones."""

from pathlib import Path

import pytest
from logs import brought, csv_of, json_lines, opened

from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.matching.run_pair import Match
from gspo_lab.analysis.readings import Source
from gspo_lab.recording.store.traces import read_prompt_digests


def prompts_check(folder: Path) -> tuple[Match, str, str]:
    """The state and detail of the check "prompts", and the certificate's grade."""
    with opened(folder) as evidence:
        certificate = study_certificate(Source(evidence, "x"))
        ((_, check),) = certificate.of("prompts")
        return check.state, check.detail, certificate.grade


def rows(prompts: list[list[str]], arm: str) -> list[dict[str, object]]:
    return [
        {"arm": arm, "seed": 0, "step": step, "reward": 0.5, "prompts": texts}
        for step, texts in enumerate(prompts, 1)
    ]


STREAM = [["1+1=", "2+2="], ["3+3="], ["4+4="]]
OTHER = [["1+1=", "2+2="], ["3+4="], ["4+4="]]


@pytest.mark.parametrize(
    ("other", "state", "said"),
    [
        (STREAM, Match.EQUAL, "the same prompts in the same order over 3 steps"),
        (OTHER, Match.UNDECLARED, "the streams of prompts part at step 2"),
    ],
)
def test_texts_of_prompts_are_compared_by_their_digest_and_not_stored(
    tmp_path: Path, other: list[list[str]], state: Match, said: str
) -> None:
    json_lines(tmp_path / "log.jsonl", [*rows(STREAM, "grpo"), *rows(other, "gspo")])
    brought(tmp_path, "jsonl", tmp_path / "log.jsonl", "--study", "x")
    found, detail, grade = prompts_check(tmp_path)
    assert found is state
    assert said in detail
    assert grade == "compared as logged: code and weights were not recorded"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*.json*"))
    assert b"1+1=" not in stored


def test_a_column_of_digests_is_named_or_mapped(tmp_path: Path) -> None:
    lines = [f"{arm},0,{step},0.5,d{step}" for arm in ("grpo", "gspo") for step in (1, 2)]
    csv_of(tmp_path / "a.csv", "arm,seed,step,reward,prompt_digest", *lines)
    csv_of(tmp_path / "b.csv", "arm,seed,step,reward,batch", *lines)
    brought(tmp_path, "csv", tmp_path / "a.csv", "--study", "x")
    assert prompts_check(tmp_path)[0] is Match.EQUAL
    brought(tmp_path, "csv", tmp_path / "b.csv", "--study", "x", "--map", "prompt_digest=batch")
    assert prompts_check(tmp_path)[0] is Match.EQUAL


def test_a_number_of_prompts_is_no_prompt(tmp_path: Path) -> None:
    lines = [f"{arm},0,{step},0.5,32" for arm in ("grpo", "gspo") for step in (1, 2)]
    csv_of(tmp_path / "a.csv", "arm,seed,step,reward,prompts", *lines)
    brought(tmp_path, "csv", tmp_path / "a.csv", "--study", "x")
    with opened(tmp_path) as evidence:
        assert read_prompt_digests(evidence, "x/grpo/s0") == {}
