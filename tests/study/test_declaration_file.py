"""study.json as one typed thing: what is written is what is read."""

import json
from pathlib import Path

import pytest
from calling import lab_error
from study_files import ARMS, SHARED, load

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study import Declaration, Edit, digest

SWEEP = "[sweep]\nupdate.learning_rate = [1e-4, 1e-3]\n"


def written(tmp_path: Path, more: str = "") -> JsonObject:
    content: JsonObject = json.loads(json.dumps(load(tmp_path, SHARED + ARMS + more).to_json()))
    return content


def test_its_digest_is_of_what_is_locked(tmp_path: Path) -> None:
    content = written(tmp_path)
    found = Declaration.parse(
        {**content, "comment": "later", "edits": [{"at": "noon", "what": "seeds"}]}, "here"
    )
    assert found.digest == found.content_digest == content["digest"] == digest(found.locked())
    assert found.edits == (Edit("noon", "seeds"),)
    assert str(found.edits[0]) == "noon seeds"
    edited = Declaration.parse({**content, "seeds": [9]}, "here")
    assert edited.digest != edited.content_digest


def test_written_and_read_it_is_the_same(tmp_path: Path) -> None:
    content = written(tmp_path)
    swept = written(tmp_path, SWEEP)
    found = Declaration.parse(content, "here")
    assert found.to_json() == content
    assert (found.baseline, found.treatments, found.primary) == ("grpo", ["gspo"], found.benches[0])
    found = Declaration.parse(swept, "here")
    assert found.to_json() == swept
    assert (found.families, found.baseline) == (["grpo", "gspo"], "grpo@0.0001")


def test_settings_of_an_earlier_version_have_the_defaults(tmp_path: Path) -> None:
    content = written(tmp_path)
    del content["arms"]["grpo"]["settings"]["update"]["skip_zero_advantage"]
    assert Declaration.parse(content, "here").arms["grpo"].settings.update.skip_zero_advantage


@pytest.mark.parametrize(
    "change",
    [
        {"arms": None},
        {"arms": {}},
        {"seeds": 3},
        {"seeds": []},
        {"seeds": [{}]},
        {"seeds": "012"},
        {"edits": [3]},
        {"edits": [{"at": "noon", "what": None}]},
        {"name": ["x"]},
        {"commands": "run"},
        {"digest": 5},
        {"sweep": {"key": "steps", "doses": [None]}},
        {"waive": {"a": 5}},
        {"reference_bands": {"grpo": [10**400, 1]}},
        {"verdict": {"margins": 3}},
        {"reference_bands": {"grpo": [0.1, float("inf")]}},
        *(
            {"arms": {"grpo": {"declared": wrong, "settings": {}}}}
            for wrong in ([["steps"]], [None], "steps")
        ),
    ],
)
def test_what_is_no_declaration_is_one_line(tmp_path: Path, change: JsonObject) -> None:
    with lab_error("here is no study of this lab"):
        Declaration.parse({**written(tmp_path), **change}, "here")
