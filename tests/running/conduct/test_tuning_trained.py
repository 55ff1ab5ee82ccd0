"""[tune] with runs that really train.

A kill during the trials leaves what an uninterrupted study would have left.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from counting import Bench, conducted
from laboratory import json_of
from trained import timeless, tiny
from waiting import until

from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.matching.certificate import verify_record
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.runfolder import run_folders
from gspo_lab.recording.store import Evidence
from gspo_lab.report import render
from gspo_lab.study import Study, load_study

TUNE = """
[tune]
seeds = [7]
steps = 2
values = {"update.learning_rate" = [1e-4, 3e-3, 1e-3]}
"""


def study(folder: Path) -> Study:
    folder.mkdir(exist_ok=True)
    toml = tiny(folder)
    toml.write_text(f"{toml.read_text()}{TUNE}")
    return load_study(toml)


def left(runs: Path) -> dict[str, list[JsonObject]]:
    """By run every record that counts, without its times, and the weights.

    The workers' messages of trials are left out: a killed trial has more of them.
    """
    out = {}
    for home in (runs / "tiny", runs / "tiny-trials"):
        for entry in run_folders(home):
            backup = [timeless(record) for record in entry.records() if record["kind"] != "status"]
            weights = [
                hashlib.sha256(path.read_bytes()).hexdigest()
                for path in entry.final.glob("*.safetensors")
            ]
            out[entry.path.relative_to(runs).as_posix()] = [*backup, {"weights": weights}]
    return out


@pytest.mark.slow
def test_a_kill_amid_real_trials_leaves_the_same_choice_and_the_same_bits(
    bench: Bench, tmp_path: Path
) -> None:
    complete = study(tmp_path / "whole")
    result, output = conducted(complete, tmp_path / "whole" / "runs", jobs=2)
    assert result.exit_code == 0, output

    cut = tmp_path / "cut"
    study(cut)
    (cut / "hold").touch()  # graders wait amid the second step
    command = [
        sys.executable,
        "-m",
        "gspo_lab.cli",
        "run",
        str(cut / "tiny.toml"),
        "--runs",
        str(cut / "runs"),
    ]
    command += ["--output-dir", str(cut)]
    conductor = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    bench.conductors.append(conductor)  # ended by the fixture whatever happens
    until(lambda: any(cut.glob("held-*")))
    conductor.kill()
    conductor.communicate()
    (cut / "hold").unlink()
    result, output = conducted(study(cut), cut / "runs", jobs=2)
    assert result.exit_code == 0, output

    assert left(cut / "runs") == left(tmp_path / "whole" / "runs")
    declared = [json_of(tmp_path / entry / "runs/tiny/study.json") for entry in ("whole", "cut")]
    assert declared[0]["tune"]["chosen"] == declared[1]["tune"]["chosen"]
    with Evidence.open(cut / "runs/lab.db", cut / "runs") as evidence:
        entry = Source(evidence, "tiny")
        certificate = verify_record(evidence, study_certificate(entry), {})
        assert certificate.ok, certificate.lines()
        assert (
            "3 trials (3 candidates x 1 seed, 10 steps in all)" in certificate.tuning.detail
        )  # 3 to step 2, 2 on to 4
        page = render([entry])
    assert "m-tuning-grpo" in page.html
    assert json.loads(page.json)
