"""One update on `cuda` tensors that have shapes and no numbers, on a machine without a GPU.

    python cuda_shapes.py LIBRARY MODEL LORA_RANK DTYPE       prints what was trained, as JSON

LIBRARY is cuda_guard.cpp, compiled; a torch that was built with CUDA needs none ("-"). Tensors of
integers whose values follow from the batch have them: how long a response is decides shapes. A
float that the program asks for is 1, a condition that nobody knows is true. Two devices in one
operation raise, as on a GPU.
"""

import ctypes
import importlib.util
import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

if sys.argv[1] != "-":  # before torch is imported: it asks only once whether there is CUDA
    spec = importlib.util.find_spec("torch")
    ctypes.CDLL(str(Path(spec.origin).parent / "lib/libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(sys.argv[1])

import torch
import torch.cuda.amp.common
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study.schema import UpdateTable
from gspo_lab.training.engines.native.experience import Experience, pad_rollouts
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows, Updater
from gspo_lab.training.engines.native.policy import Policy
from gspo_lab.training.engines.native.trainable_model import TrainableModel
from gspo_lab.training.models.lora import add_adapters
from gspo_lab.training.models.shapes import PUBLISHED, ModelShape
from gspo_lab.training.objectives import Objective, Recorder
from gspo_lab.training.objectives.losses import LOSSES
from gspo_lab.training.samplers.base import Request, Rollout

aten = torch.ops.aten

LENGTHS = ((5, 7), (3, 9), (4, 2), (6, 6))
"""Tokens of each prompt and response."""


def plain_tuple(out: Any) -> Any:
    """torch's named tuples are leaves to its trees."""
    return tuple(out) if isinstance(out, tuple) else out


class Known(TorchDispatchMode):
    """Carries the values of small tensors of integers beside the fake ones."""

    def __init__(self) -> None:
        super().__init__()
        self.values = WeakTensorKeyDictionary()

    def value(self, x: torch.Tensor) -> torch.Tensor | None:
        return self.values.get(x)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            return self.number(args[0])
        if func is aten.nonzero.default:
            return self.carry(self.places(args[0]), args[0].device)
        if func is aten.index.Tensor:
            args = (args[0], self.indices(args[0], args[1]))
        out = func(*args, **kwargs)
        inputs = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        outputs = [x for x in tree_flatten(plain_tuple(out))[0] if isinstance(x, torch.Tensor)]
        small = all(x.numel() < 2**20 and not x.is_floating_point() for x in outputs)
        if outputs and small and all(self.value(x) is not None for x in inputs):
            local = {**kwargs, **({"device": torch.device("cpu")} if "device" in kwargs else {})}
            args, local = tree_map_only(torch.Tensor, self.value, (args, local))
            with unset_fake_temporarily():
                values = func(*args, **local)
            retained = [
                x for x in tree_flatten(plain_tuple(values))[0] if isinstance(x, torch.Tensor)
            ]
            for x, value in zip(outputs, retained, strict=True):
                self.values[x] = value
        return out

    def number(self, x: torch.Tensor) -> Any:
        value = self.value(x)
        if value is not None:
            with unset_fake_temporarily():
                return value.item()
        assert x.dtype == torch.bool or x.is_floating_point(), "a whole number that nobody knows"
        return True if x.dtype == torch.bool else 1.0

    def places(self, x: torch.Tensor) -> torch.Tensor:
        """[n, dimensions] where it is not 0; of floats, everywhere."""
        value = self.value(x)
        with unset_fake_temporarily():
            return (torch.ones(x.shape) if value is None else value).nonzero()

    def columns(self, x: torch.Tensor) -> list[torch.Tensor]:
        with unset_fake_temporarily():
            return list(self.places(x).unbind(1))

    def indices(self, x: torch.Tensor, expected: Any) -> list[Any]:
        """Masks as places."""
        out: list[Any] = []
        for item in expected:
            if item is not None and item.device.type == "cuda" and x.device.type == "cpu":
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor"
                )
            masks = item is not None and item.dtype == torch.bool
            out += [self.carry(x, item.device) for x in self.columns(item)] if masks else [item]
        return out

    def carry(self, value: torch.Tensor, device: Any) -> torch.Tensor:
        """A fake tensor of this value; of a float's, the shape alone."""
        fake = torch.empty(value.shape, dtype=value.dtype, device=device)
        if not value.is_floating_point():
            self.values[fake] = value
        return fake


def build(shape: ModelShape, rank: int, dtype: str) -> Any:
    """The model on the meta device, two layers of it: the others are like these."""
    with torch.device("meta"):
        model = plain(shape)
    if rank:
        add_adapters(model.to(getattr(torch, dtype)), rank=rank, alpha=2 * rank)
    return model


def to_cuda(model: Any) -> Any:
    """The same with fake tensors for its own, tied ones once."""
    outputs: dict[int, Any] = {}
    for module in model.modules():
        for name, x in module._parameters.items():
            if x is not None and id(x) not in outputs:
                fake = torch.empty(x.shape, dtype=x.dtype, device="cuda")
                outputs[id(x)] = torch.nn.Parameter(fake, requires_grad=x.requires_grad)
            module._parameters[name] = None if x is None else outputs[id(x)]
        for name, x in module._buffers.items():
            module._buffers[name] = (
                None if x is None else torch.empty(x.shape, dtype=x.dtype, device="cuda")
            )
    return model


def plain(shape: ModelShape) -> Any:
    sizes = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": 2,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tied,
    }
    if not shape.experts:
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes))
    routed = {
        "moe_intermediate_size": shape.inner,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "norm_topk_prob": True,
    }
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**sizes, **routed))


def batch() -> Experience:
    """Four responses of unequal length, with an advantage each."""
    rollouts = [
        Rollout(Request(str(row), tuple(range(p)), 0, row), list(range(t)), [-1.0] * t, "", False)
        for row, (p, t) in enumerate(LENGTHS)
    ]
    experience = pad_rollouts(rollouts, 0, torch.device("cpu"))
    experience.credit(torch.ones(len(LENGTHS), 1))
    return experience


def update(name: str, rank: int, dtype: Any) -> JsonObject:
    settings = UpdateTable(lora_rank=rank, dtype=dtype, microbatch_tokens=30)
    objective = Objective(importance_sampling_level="sequence", kl_coef=0.1)
    shape = PUBLISHED[name]
    device = Known()
    packed = batch()
    outputs = build(shape, rank, dtype)
    with FakeTensorMode(), device:
        model = to_cuda(outputs)
        model.train()
        policy = Policy(
            model, temperature=0.9, dtype=dtype, microbatch_tokens=settings.microbatch_tokens
        )
        trained = TrainableModel(model, settings)
        tensors = {item.name: getattr(packed, item.name) for item in fields(packed)}
        experience = replace(
            packed, **{k: device.carry(x, "cuda") for k, x in tensors.items() if x is not None}
        )
        rows = torch.arange(len(LENGTHS), device="cuda")
        updater = Updater(
            policy,
            trained,
            objective,
            LOSSES["clip"],
            Recorder(objective, {}),
            replay="none",
            sampler_is_old=False,
        )
        experience.ref_logp_NT = policy.reference(experience, rows)
        results = [
            updater.update(experience, MinibatchRows(0, index, rows, fresh=index == 0))
            for index in range(2)
        ]
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "passes": [len(item.forwards) for item in results],
        "devices": sorted(
            {
                str(x.device)
                for item in results
                for x in (item.log_ratio_MT, item.metrics["clip_fraction_tokens"])
            }
        ),
        "router_gradient": [item.columns.get("router_grad_norm") for item in results],
        "finite": [item.finite for item in results],
    }


if __name__ == "__main__":
    # These ask a GPU what it can; there is none.
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    print(json.dumps(update(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
