"""A real run small enough for a test.

It has an untrained built-in model and a reward that any text can win.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from small_models import small_start

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import to_dict
from gspo_lab.recording.records import (
    AnswerRecord,
    Record,
    RunStatus,
    StepRecord,
    UpdateRecord,
    is_time,
)
from gspo_lab.study import Run, load_study
from gspo_lab.training.engines.native.build_run import RunComponents, set_up
from gspo_lab.training.engines.native.experience import Experience, pack_routes, pad_rollouts
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.samplers import Request, Rollout, noise_key

STUDY = """
question = "does the engine do what it says?"
model = "tiny-qwen3"
steps = 2
seeds = [0]
[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
held_out = 0.25
max_tokens = 10
stop = [
  "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
  "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"
]
[rollout]
prompts_per_step = 4
group_size = 4
[update]
minibatches = 4
learning_rate = 1e-3
warmup_updates = 1
checkpoint_every = 1
[record]
rollouts = 1.0
detail_every = 1
[[bench]]
name = "lottery"
problems = 5
every = 2
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""

GRADER = """
def grade(problem, answer):
    return float(sum(answer.encode()) % 3 == 0)
"""


class Memory:
    """A sink that keeps what it is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        """Where a run was trained."""
        self.records: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        self.records += records

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def updates(self) -> list[UpdateRecord]:
        return self.of(UpdateRecord)

    @property
    def steps(self) -> list[StepRecord]:
        return self.of(StepRecord)

    @property
    def answers(self) -> list[AnswerRecord]:
        return self.of(AnswerRecord)

    @property
    def statuses(self) -> list[RunStatus]:
        return self.of(RunStatus)


class Killed(BaseException):
    """Ends a worker as a kill does: it has no last word."""


MakeRun = Callable[..., Run]
Trained = Callable[..., Memory]


def write_study(folder: Path) -> Path:
    """The study's file, with its grader and its problems beside it."""
    (folder / "lottery.py").write_text(GRADER)
    prompts = [{"prompt": "?" * (1 + i % 5) + chr(97 + i), "reference": ""} for i in range(24)]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


def run_of(study: Path, arm: str, overrides: Sequence[str] = (), seed: int = 0) -> Run:
    return next(
        run for run in load_study(study, overrides=overrides, seeds=[seed]).runs() if run.arm == arm
    )


def components(run: Run) -> RunComponents:
    """What its loop works with; an embedded model is a small one."""
    return set_up(run, small_start(run.settings.model))


def train(
    run: Run,
    folder: Path,
    stop: Callable[[], bool] = lambda: False,
    *,
    setting: RunComponents | None = None,
) -> Memory:
    """Train from where the folder stands, with these parts or new ones; what was recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    memory = Memory(folder)
    Loop(run, setting or components(run), memory, folder).run(stop)
    return memory


def recorded(*memories: Memory) -> list[JsonObject]:
    """What was recorded, but for states and times."""
    records = [
        record for memory in memories for record in memory.records if record.kind != "status"
    ]
    return [
        {key: value for key, value in to_dict(record).items() if not is_time(key)}
        for record in records
    ]


def final(folder: Path) -> bytes:
    """The weights that a run leaves."""
    return (folder / "checkpoints/final/model.safetensors").read_bytes()


# Two responses of 4 and 3 tokens; of the first one a tool wrote the middle two.
IDS = [[70, 71, 72, 73], [74, 75, 76]]
TOOL = [[True, False, False, True], [True, True, True]]


def rollouts(*, tool: bool) -> list[Rollout]:
    return [
        Rollout(
            Request("p", (65, 66), 0, 0),
            ids,
            [-1.0 if chosen or not tool else 0.0 for chosen in mask],
            "",
            False,
            loss_mask=mask if tool else None,
        )
        for ids, mask in zip(IDS, TOOL, strict=True)
    ]


TEXTS = ["?", "a much longer question than the others", "??", "short one"]


def experience_of(parts_: RunComponents, *, routes: bool = False) -> Experience:
    """Sixteen responses of unequal lengths to prompts of unequal lengths.

    Their advantages have both signs and a zero.
    """
    requests = [
        Request(
            text, tuple(parts_.tokenizer.encode(text)), sample, noise_key("lengths", text, sample)
        )
        for text in TEXTS
        for sample in range(4)
    ]
    rollouts = parts_.sampler.sample(requests, parts_.sampling, routes=routes)
    assert len({len(r.response_ids) for r in rollouts}) > 2
    out = pad_rollouts(rollouts, parts_.tokenizer.pad_token_id, parts_.device)
    adv = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0, 2.0, -2.0, 1.5] * 2)
    out.credit(adv[:, None])
    if routes:
        routers = parts_.policy.routers
        out.rollout_routes_NSLK = pack_routes(rollouts, out, routers.layers, routers.top_k)
    return out


def gemma() -> Any:
    """A model whose logits are capped after the head."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=3.0,
        attn_implementation="eager",
    )
    return Gemma2ForCausalLM(config)
