"""study.json as one typed thing: what is written is what is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from study_files import ARMS, SHARED, load

from gspo_lab.errors import LabError
from gspo_lab.study import Declaration, Edit, digest

SWEEP = "[sweep]\nupdate.learning_rate = [1e-4, 1e-3]\n"


def written(tmp_path: Path, more: str = "") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(load(tmp_path, SHARED + ARMS + more).to_json()))
    return content


@pytest.mark.parametrize("more", ["", SWEEP])
def test_written_and_read_it_is_the_same(tmp_path: Path, more: str) -> None:
    content = written(tmp_path, more)
    assert Declaration.parse(content, "here").to_json() == content


def test_its_digest_is_of_what_is_locked(tmp_path: Path) -> None:
    content = written(tmp_path)
    found = Declaration.parse({**content, "comment": "later", "edits": [{"at": "noon", "what": "seeds"}]}, "here")
    assert found.digest == found.content_digest == content["digest"] == digest(found.locked())
    assert found.edits == (Edit("noon", "seeds"),)
    assert str(found.edits[0]) == "noon seeds"
    edited = Declaration.parse({**content, "seeds": [9]}, "here")
    assert edited.digest != edited.content_digest


def test_who_is_compared_with_whom(tmp_path: Path) -> None:
    found = Declaration.parse(written(tmp_path), "here")
    assert (found.baseline, found.treatments, found.primary) == ("grpo", ["gspo"], found.benches[0])
    swept = Declaration.parse(written(tmp_path, SWEEP), "here")
    assert swept.families == ["grpo", "gspo"]
    assert swept.baseline == "grpo@0.0001"


def test_settings_of_an_earlier_version_have_the_defaults(tmp_path: Path) -> None:
    content = written(tmp_path)
    del content["arms"]["grpo"]["settings"]["update"]["skip_zero_advantage"]
    assert Declaration.parse(content, "here").arms["grpo"].settings.update.skip_zero_advantage


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"arms": None}, "here is no study of this lab"),
        ({"seeds": 3}, "here is no study of this lab"),
        ({"edits": [3]}, "here is no study of this lab"),
        ({"edits": [{"at": "noon", "what": None}]}, "here is no study of this lab"),
        ({"name": ["x"]}, "here is no study of this lab"),
        ({"arms": {}}, "here is no study of this lab"),
        ({"seeds": []}, "here is no study of this lab"),
        ({"seeds": [{}]}, "here is no study of this lab"),
        ({"seeds": "012"}, "here is no study of this lab"),
        ({"commands": "run"}, "here is no study of this lab"),
        ({"digest": 5}, "here is no study of this lab"),
        ({"sweep": {"key": "steps", "doses": [None]}}, "here is no study of this lab"),
        ({"waive": {"a": 5}}, "here is no study of this lab"),
        ({"reference_bands": {"grpo": [10**400, 1]}}, "here is no study of this lab"),
        ({"reference_bands": {"grpo": [0.1, float("inf")]}}, "here is no study of this lab"),
        ({"verdict": {"margins": 3}}, "here was written by another version of gspo-lab"),
    ],
)
def test_what_is_no_declaration_is_one_line(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(LabError, match=told):
        Declaration.parse({**written(tmp_path), **change}, "here")
    with pytest.raises(LabError, match="no study of this lab"):
        Declaration.parse([1], "here")


def test_what_an_arm_declares_is_a_list_of_keys(tmp_path: Path) -> None:
    content = written(tmp_path)
    for wrong in ([["steps"]], [None], "steps"):
        content["arms"]["grpo"]["declared"] = wrong
        with pytest.raises(LabError, match="no study of this lab"):
            Declaration.parse(content, "here")
