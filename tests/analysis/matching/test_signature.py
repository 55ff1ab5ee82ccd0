"""A person's signature under a study's record: put there, checked, and broken in every way."""

import shutil
import subprocess
from pathlib import Path

import pytest
from calling import Said, gspo_lab
from matched_lab import SealedLab

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"
)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "id"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=60
    )
    return path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    lab = SealedLab(tmp_path_factory.mktemp("signed"))
    assert certify(lab, "--sign", key).code == 0
    return lab.folder


@pytest.fixture
def lab(signed: Path, tmp_path: Path) -> SealedLab:
    return SealedLab.copied(signed, tmp_path)


def certify(lab: SealedLab, *words: object) -> Said:
    return gspo_lab("certify", "toy", "--runs", lab.runs, *words)


def signature(lab: SealedLab) -> tuple[str, str]:
    """State and detail of the check."""
    ((_, check),) = lab.certified().of("signature")
    return check.state, check.detail


def test_a_signed_record_names_its_signer(lab: SealedLab, key: Path) -> None:
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True, check=True, timeout=60
    )
    assert signature(lab) == ("equal", f"signed by ED25519 {shown.stdout.split()[1]}")
    listed = (lab.home / "record.sha256").read_text().splitlines()
    assert [line[66:] for line in listed if "s0" in line or "/" not in line[66:]] == [
        "grpo/s0/journal.jsonl",
        "grpo/s0/run.json",
        "gspo/s0/journal.jsonl",
        "gspo/s0/run.json",
        "study.json",
    ]


def test_every_file_that_is_another_one_is_named(lab: SealedLab) -> None:
    journal = lab.journal("gspo/s1")
    lab.sealed("gspo/s1", lambda items: items[0].update(at=1.0))
    assert signature(lab) == ("differs undeclared", "gspo/s1/journal.jsonl is another")
    journal.unlink()
    (lab.home / "gspo/s1/grades").mkdir()
    (lab.home / "gspo/s1/grades/journal.jsonl").touch()
    said = signature(lab)[1]
    assert said == "gspo/s1/grades/journal.jsonl is new; gspo/s1/journal.jsonl is gone"


def test_a_list_that_was_edited_is_not_what_was_signed(lab: SealedLab) -> None:
    path = lab.home / "record.sha256"
    path.write_text(path.read_text().replace("  gspo", "  GSPO", 1))
    assert signature(lab) == ("differs undeclared", "record.sha256 is not what was signed")


def test_a_broken_signature_is_one_line_and_exit_code_2(lab: SealedLab, key: Path) -> None:
    path = lab.home / "record.sha256.sig"
    whole = path.read_text()
    for broken in ("", "no signature\n", whole[:120], whole.replace("U1NIU0lH", "AAAAAAAA", 1)):
        path.write_text(broken)
        said = certify(lab)
        assert said.code == 2
        assert "record.sha256.sig is broken" in said.err
        assert "Traceback" not in said.err
    path.write_text(whole)
    (lab.home / "record.sha256").unlink()
    said = certify(lab)
    assert said.code == 2
    assert "delete both, then sign again" in said.err
    path.unlink()
    assert certify(lab, "--sign", key).code == 0


def test_what_does_not_pass_is_not_signed_and_neither_is_anything_by_no_key(
    lab: SealedLab, key: Path
) -> None:
    before = (lab.home / "record.sha256").read_bytes()
    for wrong in (lab.folder / "nothing", lab.home / "study.json"):
        said = certify(lab, "--sign", wrong)
        assert said.code == 2
        assert f"--sign {wrong}" in said.err
    lab.sealed("gspo/s1", lambda items: items[0].update(run="toy/gspo/s7"))
    said = certify(lab, "--sign", key)
    assert said.code == 2
    assert "not signed, toy: NOT matched" in said.err
    assert (lab.home / "record.sha256").read_bytes() == before
