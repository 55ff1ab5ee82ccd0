"""What is never stored of a log: secrets, and what belongs to a person or a machine.

One rule for every source. A name that looks like a key's is left out with its value, and so is a
value that looks like a key. Environment variables, command lines, users, mail and home folders are
no settings.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


SECRET_WORDS = word_set(
    "secret secrets password passwords passwd passphrase pwd credential credentials cred"
    " creds bearer cookie cookies apikey apikeys authorization authentication auth oauth dsn"
    " webhook webhooks jwt netrc kubeconfig pgpass otp totp mnemonic"
)
KEY_OWNERS = word_set(
    "api access private secret account auth encryption ssh license deploy service aws gcp azure"
    " wandb openai anthropic hf hub storage signing shared client master session ssl tls gpg pgp"
    " rsa deploy webhook"
)
"""Words before `key` that make it a secret: `api_key`, but not `score_key`."""
TEXT_TOKENS = word_set(
    "pad eos bos unk sep cls mask image video audio stop start end special think thinking first"
    " last next new per decoder boi eoi vision begin prefix suffix response prompt"
)
"""Words before `token` that name a token of text."""
PERSONAL_WORDS = word_set(
    "env envs environ environment environments envvars command commands cmd cmdline argv cli"
    " entrypoint user users username login email emails mail home homedir phone author owner"
    " whoami hostname host entity organization uid gid pythonpath executable"
)
SECRET_VALUE = re.compile(
    r"(?:^|[\s=:'\"/,])(?:sk-|sk_live_|rk_live_|pk_live_|hf_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-"
    r"|AKIA|ASIA|AIza|eyJ[\w-]{6,}\.|wandb_v\d|dckr_pat_|npm_|pypi-|ya29\.|nvapi-|gsk_|r8_|SG\.)"
    r"[\w.-]{6,}"
    r"|-----BEGIN |://[^/\s@]*@|[\w.+-]+@[\w-]+\.\w|Bearer\s+\S|Basic\s+\S*[a-z][A-Z\d=]"
    r"|://hooks\.|/webhooks?/|^/(?:home|Users)/[^/]+/?$"
    r"|(?:^|\s)--?\w[\w-]*[ =]|(?i:(?:password|passwd|pwd|secret|token|signature|\bsig"
    r"|(?:api|access|account|private|shared)[_-]?\w*key\w*)['\"]?\s*[=:]\s*\S)"
)
"""Keys of well-known services, addresses with a password, mail, home folders, command lines,
`password=...`.
"""
CODE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{8,}")
"""The value under a bare `key` that makes it a secret, not the name of a column."""
RANDOM_RUN = re.compile(r"[A-Za-z0-9]{20,}|[A-Fa-f0-9]{32,}")
AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])")
MOST_ENTRIES = 100_000
"""Entries of a configuration; a small file may name one table many times."""
CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _words(name: str) -> list[str]:
    parted = CASE_CHANGE.sub("_", name)
    return [word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word]


def is_secret_name(name: str, value: Any = 0) -> bool:
    """Whether a dotted key names a secret; `hf_token` only with a value that is text."""
    words = _words(name)
    if not SECRET_WORDS.isdisjoint(words):
        return True
    bare_key = name.lower().rpartition(".")[2] == "key"
    if words[-1:] == ["pin"] or (bare_key and CODE.fullmatch(str(value))):
        return True
    for owner, word in zip(["", *words], words, strict=False):
        if word in ("key", "keys") and owner in KEY_OWNERS:
            return True
        if word in ("token", "tokens") and isinstance(value, str) and owner not in TEXT_TOKENS:
            return words[-1] == word
    return False


def is_personal_name(name: str) -> bool:
    """Whether a dotted key is of the environment, a command line or a person.

    `hub_model_id` is: the repository to push to begins with the user's account.
    """
    words = _words(name)
    return not PERSONAL_WORDS.isdisjoint(words) or words[-3:] == ["hub", "model", "id"]


def has_random_run(text: str) -> bool:
    """Whether a text holds a long run of letters and digits in no order of a language."""
    runs = RANDOM_RUN.findall(text)
    digits = [sum(char.isdigit() for char in run) for run in runs]
    if any(2 <= count < len(run) for count, run in zip(digits, runs, strict=True)):
        return True
    return any(re.search(r"\d", run) and run.lower() != run for run in AWS_SECRET.findall(text))


def is_secret_value(value: Any) -> bool:
    """Whether a text looks like a key, holds one, or names a person's mail or command line."""
    if isinstance(value, list | tuple):
        line = " ".join(entry for entry in value if isinstance(entry, str))
        return any(is_secret_value(entry) for entry in (line, *value))
    return isinstance(value, str) and bool(SECRET_VALUE.search(value) or has_random_run(value))


def public_settings(config: JsonMapping) -> tuple[JsonObject, int]:
    """A program's configuration by dotted keys without secrets and personal values, and how many
    values were left out.
    """
    public: JsonObject = {}
    count = 0
    for key, value in _entries(config, ""):
        count += 1
        if count > MOST_ENTRIES:
            raise LabError(f"a configuration of more than {MOST_ENTRIES:,} entries, which none has")
        secret = is_secret_name(key, value) or is_secret_value(value)
        if not secret and not is_personal_name(key):
            public[key] = value
    return public, count - len(public)


def _entries(table: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The entries of nested tables by dotted keys; a list of tables counts from 0."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            yield from _entries(value, f"{name}.")
        else:
            yield name, value


def without_home(path: str) -> str:
    """A path without the folder of a person: `~/out/log.csv` for `/home/alice/out/log.csv`."""
    home = str(Path.home())
    if home != "/" and (path == home or path.startswith(f"{home}/")):
        return f"~{path.removeprefix(home)}"
    return re.sub(r"^/(?:home|Users)/[^/]+", "~", path)
