"""Where each benchmark's problems are published: repository, commit, files with their sha256, and how many there are.

Commits and digests were read in public repositories that pin the same files (docs/reference/benchmarks.md). A file
without a published digest is held by the commit alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a dataset on the Hub. `sha256` None: not known, the commit alone says which it is."""

    path: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one commit of a dataset on the Hub that hold `rows` problems together."""

    repository: str
    commit: str
    files: tuple[RemoteFile, ...]
    rows: int


AIME24 = Source(
    "HuggingFaceH4/aime_2024",
    "2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    (
        RemoteFile(
            "data/train-00000-of-00001.parquet", "26139847601a5037c237d5928b195e7260ca8074cf4f264b794af42847f79ccf"
        ),
    ),
    rows=30,
)

AIME25 = Source(
    "math-ai/aime25",
    "563bb8404243c5f09de6ec262f2db674fe5bce9b",
    (RemoteFile("test.jsonl", "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331"),),
    rows=30,
)

MATH500 = Source(
    "HuggingFaceH4/MATH-500",
    "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    (RemoteFile("test.jsonl", "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"),),
    rows=500,
)

_GSM8K_COMMIT = "740312add88f781978c0658806c59bc2815b9866"

GSM8K: Mapping[str, Source] = {
    "train": Source(
        "openai/gsm8k",
        _GSM8K_COMMIT,
        (
            RemoteFile(
                "main/train-00000-of-00001.parquet", "ea82612ea9582142387730c793eb67d3b12849002bc0b7fa6f8efafa7351419d"
            ),
        ),
        rows=7_473,
    ),
    "held-out": Source(
        "openai/gsm8k",
        _GSM8K_COMMIT,
        (
            RemoteFile(
                "main/test-00000-of-00001.parquet", "ee7b8da9e381df27b9e3f7758a159ab2bdaa4dbaa910546cbbc47e0cb44e4f59"
            ),
        ),
        rows=1_319,
    ),
}

_LCB_FILES = (
    RemoteFile("test.jsonl", "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f"),
    RemoteFile("test2.jsonl", "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3"),
    RemoteFile("test3.jsonl", "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79"),
    RemoteFile("test4.jsonl", "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da"),
    RemoteFile("test5.jsonl", "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214"),
    RemoteFile("test6.jsonl", "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5"),
)

LIVECODEBENCH: Mapping[str, Source] = {
    f"release_v{count}": Source(
        "livecodebench/code_generation_lite", "0fe84c3912ea0c4d4a78037083943e8f0c4dd505", _LCB_FILES[:count], rows
    )
    for count, rows in enumerate((400, 511, 612, 713, 880, 1_055), start=1)
}
"""By release, each of which holds the files of those before it: release_v5 is files 1 to 5, together 880 problems."""

CODEFORCES = Source(
    "open-r1/codeforces",
    "fbe3f6e903ee854eec2e69e9d96d0306cde59baf",
    (RemoteFile("verifiable/test-00000-of-00001.parquet"),),
    rows=422,
)
