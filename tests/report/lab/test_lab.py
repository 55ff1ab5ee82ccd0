"""`gspo_lab.open`: frames with the numbers that the report has."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import rendered
from synthetic_lab import make_lab

import gspo_lab
from gspo_lab.recording.store import ingest
from gspo_lab.report.lab import Lab


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("lab"), seeds=3, steps=6, every=3)


@pytest.fixture
def lab(database: Path) -> Iterator[Lab]:
    with gspo_lab.open(database.parent) as opened:
        yield opened


def test_studies_and_runs(lab: Lab) -> None:
    [row] = lab.studies().to_dict("records")
    assert_fields(row, study="toy", arms="grpo, gspo", runs=6, finished=6)
    runs = lab.study("toy").runs()
    assert runs[["arm", "seed"]].to_numpy().tolist() == [
        [arm, seed] for arm in ("grpo", "gspo") for seed in range(3)
    ]
    assert (runs["gain"] == runs["final"] - runs["start"]).all()
    with lab_error(r"no study 'tooy' \(did you mean 'toy'\?\)"):
        lab.study("tooy")


def test_verdicts_answer_and_certificate_are_the_report_s(lab: Lab, database: Path) -> None:
    study = lab.study("toy")
    told = json.loads(rendered(database, "toy").json)["studies"]["toy"]
    [verdict] = study.verdicts().to_dict("records")
    said = told["answer"]["comparisons"]["gspo"]
    assert [verdict[name] for name in ("word", "sentence")] == [said["word"], said["sentence"]]
    for name in ("estimate", "low", "high", "p"):
        assert verdict[name] == pytest.approx(said["paired"][name], rel=1e-5), (
            name
        )  # the report rounds
    assert study.answer().splitlines()[0] == told["answer"]["answer"]["said"]
    certificate = study.certificate()
    states = certificate.groupby("check")["state"].value_counts()
    for check, counts in told["certificate"]["states"].items():
        assert states[check].to_dict() == counts, check
    assert certificate[certificate["check"] == "prompts"]["seed"].tolist() == [0, 1, 2]
    assert certificate.attrs["ok"] is True
    assert certificate.attrs["headline"].startswith("toy")


def test_scores_and_final_are_means_of_what_was_asked(lab: Lab) -> None:
    """One run's score by its own answers: 20 problems, so twentieths."""
    scores = lab.study("toy").scores()
    own = scores[(scores["run_id"] == "toy/gspo/s1")].set_index("step")
    assert own.index.tolist() == [0, 3, 6]
    assert own["problems"].tolist() == [20, 20, 20]
    runs = lab.study("toy").runs().set_index(["arm", "seed"])
    assert runs["start"].to_dict()["gspo", 1] == own["score"].to_dict()[0]


def test_records_have_their_units(lab: Lab) -> None:
    study = lab.study("toy")
    steps = study.records("reward_mean", "response_tokens_mean")
    assert len(steps) == 6 * 6
    assert steps.attrs["units"]["response_tokens_mean"] == "tokens"
    updates = study.records("clip_fraction_tokens")
    assert {"step", "minibatch", "clip_fraction_tokens"} <= {*updates}
    assert updates.attrs["meanings"]["clip_fraction_tokens"].startswith("the headline")
    with lab_error(r"no metric 'rewrd_mean' \(did you mean 'reward_mean'\?\)"):
        study.records("rewrd_mean")
    with lab_error("ask for them apart"):
        study.records("reward_mean", "clip_fraction_tokens")


def test_claims_of_the_library_are_descriptions(lab: Lab) -> None:
    study = lab.study("toy")
    assert study.claims().empty
    every = study.claims(every=True)
    assert not every["declared"].any()
    assert set(every["word"]) <= {"supported", "contradicted", "inconclusive", "not testable here"}
    assert len(every) > 10


def test_reading_changes_no_byte_and_shows_the_moment_of_its_opening(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=3, steps=4, every=2)
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    with gspo_lab.open(tmp_path / "runs") as lab:
        assert len(lab.studies()) == 1
        lab.study("toy").verdicts()
        assert hashlib.sha256(database.read_bytes()).hexdigest() == before
        make_lab(tmp_path, seeds=3, steps=4, every=2, name="later")
        ingest(tmp_path / "runs")
        assert lab.studies()["study"].tolist() == ["toy"]
    with gspo_lab.open(tmp_path / "runs") as lab:
        assert set(lab.studies()["study"]) == {"toy", "later"}


def test_a_folder_without_a_database_is_one_line(tmp_path: Path) -> None:
    with lab_error("gspo-lab show --runs"):
        gspo_lab.open(tmp_path)
    assert not list(tmp_path.iterdir())
