"""A person's signature under a study's record: the digests of its files in a list, signed by an SSH key.

runs/<study>/record.sha256      a line "sha256  path" of study.json and of each run's files; sha256sum -c reads it
runs/<study>/record.sha256.sig  an SSH signature of that list (namespace gspo-lab), made and checked by ssh-keygen
"""

import re
import shutil
import subprocess
from pathlib import Path

from gspo_lab.atomic_files import atomic_file, sha256_of
from gspo_lab.errors import LabError
from gspo_lab.paths import RUN, STUDY
from gspo_lab.store.run_files import run_folders, sources

MANIFEST, SIGNATURE = "record.sha256", "record.sha256.sig"
NAMESPACE = "gspo-lab"
"""What the signature is for: one made for mail or commits is none of a record."""
ARMOUR = "-----BEGIN SSH SIGNATURE-----"
GOOD = re.compile(r"with (\S+) key (\S+)")


def sign(home: Path, key: Path) -> str:
    """List the files of a study's folder, sign the list with a private SSH key; the signer. LabError where it fails."""
    if not key.is_file():
        raise LabError(f"--sign {key}: no such file; make a key with ssh-keygen -t ed25519, and name its private half")
    manifest = _manifest(home)
    done = _ssh_keygen("sign", "-f", str(key), text=manifest)
    if done.returncode or ARMOUR not in done.stdout:
        raise LabError(f"--sign {key}: ssh-keygen did not sign ({_last(done.stderr)}); is it a private key?")
    for name, text in ((MANIFEST, manifest), (SIGNATURE, done.stdout)):
        with atomic_file(home / name) as partial:
            partial.write_text(text, encoding="utf-8")
    signer, _ = check(home)
    return signer or ""


def check(home: Path) -> tuple[str | None, list[str]]:
    """Who signed a study's record (kind and fingerprint of the key; None: nobody did), and what is not as it was then.

    LabError where the signature is none, so that nothing can be said.
    """
    if not (home / SIGNATURE).exists():
        return None, []
    try:
        manifest = (home / MANIFEST).read_text(encoding="utf-8")
        armour = (home / SIGNATURE).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LabError(
            f"{home / MANIFEST} and its signature cannot be read ({error}): delete both, then sign again"
        ) from error
    done = _ssh_keygen("check-novalidate", "-s", str(home / SIGNATURE), text=manifest)
    signer = GOOD.search(done.stdout)
    if done.returncode or signer is None:
        if ARMOUR not in armour or "verification failed" not in done.stderr:
            raise LabError(
                f"{home / SIGNATURE} is broken ({_last(done.stderr)}): restore it from a copy, or delete it, then sign "
                "again"
            )
        return "unknown", [f"{MANIFEST} is not what was signed"]
    return f"{signer[1]} {signer[2]}", _changed(manifest, _manifest(home))


def _manifest(home: Path) -> str:
    runs = home.parent
    names = [f"{home.name}/{STUDY}"]
    for folder in run_folders(home)[0]:
        run = folder.relative_to(runs).as_posix()
        names += [f"{run}/{RUN}", *sources(runs, run, ())]
    lines = []
    for name in sorted(names):
        path = runs / name
        if path.is_file():
            lines.append(f"{sha256_of(path)}  {name.removeprefix(home.name + '/')}\n")
    return "".join(lines)


def _changed(signed: str, now: str) -> list[str]:
    """What became of each file that is not as it was signed."""
    before, after = ({line[66:]: line[:64] for line in text.splitlines()} for text in (signed, now))
    odd = sorted(name for name in before | after if before.get(name) != after.get(name))
    return [f"{name} is {'gone' if name not in after else 'new' if name not in before else 'another'}" for name in odd]


def _ssh_keygen(action: str, *words: str, text: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which("ssh-keygen") is None:
        raise LabError("ssh-keygen is not installed: signatures need OpenSSH 8.1 or newer")
    command = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no word"
