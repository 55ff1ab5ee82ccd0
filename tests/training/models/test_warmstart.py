import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from calling import lab_error
from laboratory import json_of

from gspo_lab.common.paths import cache_folder
from gspo_lab.common.plain_data import Strings
from gspo_lab.study.start_tables import WarmStart
from gspo_lab.tasks.base import Grade, Problem, Task
from gspo_lab.training.models import warm_start as warmstart
from gspo_lab.training.models.builtin_models import EOS_ID, PAD_ID, build, byte_tokenizer
from gspo_lab.training.models.load import load_model, weights_digest
from gspo_lab.training.models.warm_start import (
    loss,
    pad_demonstrations,
    train,
    warm_start,
)


@dataclass
class Next(Task):
    """What letter comes next? "b>" wants "c"."""

    letters: str = "abcdef"
    name: str = "next"
    grader: str = "next/1"
    stop: Strings = ()
    max_tokens: int = 4
    displayed: bool = True

    def problems(self, split: str) -> Sequence[Problem]:
        assert split == "train"
        pairs = [(x, chr(ord(x) + 1)) for x in self.letters]
        return [
            Problem(x, f"{x}>", following, following if self.displayed else None)
            for x, following in pairs
        ]

    def grade(self, problem: Problem, answer: str) -> Grade:
        right = answer == problem.reference
        return Grade(reward=float(right), correct=right)


SETTINGS = WarmStart(steps=3, batch_size=4, learning_rate=3e-3, warmup_steps=1)


def test_a_demonstration_is_packed_as_prompt_answer_eos_and_only_the_answer_is_learnt() -> None:
    batch = [Problem("0", "1+1=", "2", "2"), Problem("1", "9+1=", "10", "10")]
    ids_BS, answer_BS = pad_demonstrations(byte_tokenizer(), batch)
    assert ids_BS.tolist() == [
        [49, 43, 49, 61, 50, EOS_ID, PAD_ID],
        [57, 43, 49, 61, 49, 48, EOS_ID],
    ]
    assert answer_BS.int().tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]]


def test_what_the_environment_replies_is_fed_and_not_learnt() -> None:
    several = Problem("0", "1:", "3", demonstrated_turns=("2", ">9", "3"))
    ids_BS, answer_BS = pad_demonstrations(
        byte_tokenizer(), [several, Problem("1", "1:", "2", "2>93")]
    )
    assert ids_BS[0].tolist() == ids_BS[1].tolist() == [*b"1:2>93", EOS_ID]
    assert answer_BS.int().tolist() == [[0, 0, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1]]
    model = build("tiny-qwen3", 0, {"layers": 1, "width": 16})
    with torch.no_grad():
        log_p = model(input_ids=ids_BS[:1]).logits.log_softmax(dim=-1)[0]
        actual = loss(model, ids_BS[:1], answer_BS[:1]).item()
    assert actual == pytest.approx(
        -(log_p[1, ord("2")] + log_p[4, ord("3")] + log_p[5, EOS_ID]).item() / 3, rel=1e-5
    )


@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-qwen3-moe", "tiny-olmoe"])
def test_the_loss_is_the_mean_over_answer_tokens_whatever_the_padding(name: str) -> None:
    model = build(name, 0, {"layers": 2, "width": 32})
    batch = [Problem("0", "1+1=", "2", "2"), Problem("1", "123+1=", "124", "the answer is 124")]
    with torch.no_grad():
        alone = [
            (loss(model, *packed), int(packed[1].sum()))
            for p in batch
            for packed in [pad_demonstrations(byte_tokenizer(), [p])]
        ]
        together = loss(model, *pad_demonstrations(byte_tokenizer(), batch))
        ids_BS, _ = pad_demonstrations(byte_tokenizer(), batch[:1])
        log_p = model(input_ids=ids_BS).logits.log_softmax(dim=-1)
    assert [n for _, n in alone] == [2, 18]
    assert together.item() == pytest.approx(
        sum(value.item() * n for value, n in alone) / 20, rel=1e-5
    )
    assert alone[0][0].item() == pytest.approx(
        -(log_p[0, 3, 50] + log_p[0, 4, EOS_ID]).item() / 2, rel=1e-5
    )


def test_the_learning_rate_rises_then_falls() -> None:
    rates = [
        SETTINGS.replace(steps=6, learning_rate=1.0, warmup_steps=2).rate(step) for step in range(6)
    ]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 3 / 4, 1 / 2, 1 / 4])
    assert SETTINGS.replace(steps=3, learning_rate=1.0, warmup_steps=0).rate(0) == 1
    short = [
        SETTINGS.replace(steps=2, learning_rate=1.0, warmup_steps=9).rate(step) for step in range(2)
    ]
    assert short == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-qwen3-moe", "tiny-olmoe"])
def test_training_teaches_the_demonstrations(name: str) -> None:
    model = build(name, 0)
    task = Next()
    losses = []
    state = torch.get_rng_state()
    threads = torch.get_num_threads()
    train(
        model,
        byte_tokenizer(),
        task.problems("train"),
        SETTINGS.replace(steps=60, batch_size=6),
        0,
        lambda *recorded: losses.append(recorded),
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not model.training
    assert [step for step, _, _ in losses] == list(range(1, 61))
    assert losses[0][1:] == (60, pytest.approx(math.log(264), abs=0.5))
    assert losses[-1][2] < 0.1
    ids_BS, answer_BS = pad_demonstrations(byte_tokenizer(), task.problems("train"))
    with torch.no_grad():
        guess_BS = model(input_ids=ids_BS).logits.argmax(dim=-1)
    assert torch.equal(guess_BS[:, :-1][answer_BS[:, 1:]], ids_BS[:, 1:][answer_BS[:, 1:]])


def test_a_folder_is_made_once_and_again_with_the_same_bits(tmp_path: Path) -> None:
    recorded: list[int] = []

    def note(step: int, steps: int, _: float) -> None:
        recorded.append(step)

    earlier = warm_start("tiny-qwen3-moe", Next(), SETTINGS, 0, tmp_path / "a", note)
    assert recorded == [1, 2, 3]
    assert warm_start("tiny-qwen3-moe", Next(), SETTINGS, 0, tmp_path / "a", note) == earlier
    assert recorded == [1, 2, 3]
    again = warm_start("tiny-qwen3-moe", Next(), SETTINGS, 0, tmp_path / "b")
    assert again.name == earlier.name
    models = [
        load_model("tiny-qwen3-moe", dtype="float32", device="cpu", checkpoint=path)[0]
        for path in (earlier, again)
    ]
    digest = weights_digest(models[0])
    assert digest == weights_digest(models[1]) != weights_digest(build("tiny-qwen3-moe", 0))
    assert json_of(earlier / "manifest.json")["weights"] == digest


def test_without_steps_the_weights_are_as_drawn_and_the_task_does_not_matter(
    tmp_path: Path,
) -> None:
    path = warm_start("tiny-qwen3", Next(displayed=False), SETTINGS.replace(steps=0), 7, tmp_path)
    model, _ = load_model("tiny-qwen3", dtype="float32", device="cpu", checkpoint=path)
    assert weights_digest(model) == weights_digest(build("tiny-qwen3", 7))
    assert (
        warm_start("tiny-qwen3", Next("xy"), SETTINGS.replace(steps=0, batch_size=9), 7, tmp_path)
        == path
    )


def test_a_warm_start_of_fresh_routers_trains_all_but_those(tmp_path: Path) -> None:
    name = "tiny-qwen3-moe-fresh"
    path = warm_start(name, Next(), SETTINGS, 0, tmp_path)
    model, _ = load_model(name, dtype="float32", device="cpu", checkpoint=path)
    drawn = build(name, 0).state_dict()
    retained = {
        key for key, weight in model.state_dict().items() if torch.equal(weight, drawn[key])
    }
    assert retained == {f"model.layers.{layer}.mlp.gate.weight" for layer in range(4)}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_everything_that_decides_the_weights_is_in_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = SETTINGS.replace(steps=1, batch_size=1)

    def name(
        model: str = "tiny-qwen3",
        task: Next | None = None,
        settings: WarmStart = base,
        seed: int = 0,
    ) -> str:
        return warm_start(model, task or Next(), settings, seed, tmp_path).name

    names = [
        name(),
        name(model="tiny-olmoe"),
        name(task=Next("abcdeg")),
        name(task=Next(name="other")),
        *(
            name(settings=base.replace(**{key: 2}))
            for key in ("steps", "batch_size", "learning_rate", "warmup_steps")
        ),
        name(seed=1),
    ]
    monkeypatch.setattr(warmstart, "version", lambda package: "99")
    names.append(name())
    monkeypatch.setattr(warmstart, "WARM_START_VERSION", -1)
    names.append(name())
    assert len(set(names)) == len(names)


def test_callers_at_the_same_time_share_one_training(tmp_path: Path) -> None:
    recorded: list[int] = []

    def make(_: int) -> Path:
        return warm_start(
            "tiny-qwen3", Next(), SETTINGS, 0, tmp_path, lambda step, *_: recorded.append(step)
        )

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(make, range(3)))) == 1
    assert recorded == [1, 2, 3]


def test_a_death_on_the_way_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            warmstart, "weights_digest", die
        )  # the weights are written by then, the manifest is not
        with pytest.raises(KeyboardInterrupt):
            warm_start("tiny-qwen3", Next(), SETTINGS, 0, tmp_path)
    assert not list(tmp_path.rglob("manifest.json"))
    assert not list(tmp_path.rglob("model.safetensors"))
    uninterrupted = warm_start("tiny-qwen3", Next(), SETTINGS, 0, tmp_path / "elsewhere")
    leftover = (
        tmp_path
        / uninterrupted.relative_to(tmp_path / "elsewhere").parent
        / f".{uninterrupted.name}.partial"
    )
    leftover.mkdir()  # what a kill leaves, which can tidy nothing
    (leftover / "model.safetensors").write_bytes(b"half")
    path = warm_start("tiny-qwen3", Next(), SETTINGS, 0, tmp_path)
    load_model("tiny-qwen3", dtype="float32", device="cpu", checkpoint=path)
    assert [p.name for p in path.parent.iterdir() if p.is_dir()] == [path.name]


def test_what_cannot_be_warm_started_is_said(tmp_path: Path) -> None:
    with lab_error("no demonstrations"):
        warm_start("tiny-qwen3", Next(displayed=False), SETTINGS, 0, tmp_path)
    with lab_error(r"embedded model, not 'tiny-qwen' \(did you mean 'tiny-qwen3'"):
        warm_start("tiny-qwen", Next(), SETTINGS, 0, tmp_path)
    (tmp_path / "file").write_text("")
    with lab_error("set GSPO_LAB_CACHE"):
        warm_start("tiny-qwen3", Next(), SETTINGS, 0, tmp_path / "file")


def test_the_loss_of_a_model_that_knows_nothing_is_that_of_a_guess_among_all_tokens() -> None:
    model = build("tiny-qwen3", 0, {"layers": 1, "width": 16})
    model.get_output_embeddings().weight.data.zero_()
    assert loss(
        model, *pad_demonstrations(byte_tokenizer(), Next().problems("train"))
    ).item() == pytest.approx(math.log(264))


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GSPO_LAB_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "gspo-lab"
