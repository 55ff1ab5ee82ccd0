"""From a model's name to the model and its tokenizer, the digests that prove which they are, and
the device.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from logging import ERROR
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.utils import logging

from gspo_lab.common.atomic_files import check_digests
from gspo_lab.common.errors import LabError
from gspo_lab.common.keys import Dtype
from gspo_lab.common.plain_data import Integers, OptionalInt, OptionalText
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.models.check import EMBEDDED, check_model, first_line
from gspo_lab.training.models.lora import plain_state
from gspo_lab.training.models.same_bits import install

THINKING = "enable_thinking"
"""The variable by which chat templates (Qwen3's, for one) let a caller switch thinking on or off.
"""


def load_model(
    name: str, *, dtype: Dtype, device: str, checkpoint: Path | None = None, seed: int = 0
) -> tuple[Any, Any]:
    """`(model, tokenizer)` of an embedded name, a local folder or a Hub id; the model in eval mode
    on `device`.

    `checkpoint` is a folder saved from a model called `name`: both are then read from there. `seed`
    draws the weights of an embedded model without checkpoint. The tokenizer has a pad token, the
    model's generation_config an end of sequence where either of the two knows one. LabError for
    whatever is missing, broken, unknown or incomplete: a model some of whose weights would be
    random is never returned.
    """
    install()
    if checkpoint is None and name in EMBEDDED:
        model = build(name, seed).to(getattr(torch, dtype))
        tokenizer = byte_tokenizer()
    else:
        source = name if checkpoint is None else str(checkpoint)
        if checkpoint is not None and not checkpoint.is_dir():
            raise LabError(f"no checkpoint folder {checkpoint} for the model '{name}'")
        check_model(source)
        folder = Path(source).expanduser()
        check_digests(folder)
        with silence_transformers():
            # The cheapest first: a wrong name or tokenizer is known before gigabytes are read.
            source = str(folder) if folder.is_dir() else source
            settings = load_config(source)
            tokenizer = _load_tokenizer(source)
            model = _load_weights(source, settings, getattr(torch, dtype))
    _settle_special_tokens(name, model, tokenizer)
    model.to(device)
    model.tie_weights()  # on a device other than CPU and CUDA torch has made tied weights two
    return model.eval(), tokenizer


def load_tokenizer(source: str) -> tuple[Any, Integers]:
    """`(tokenizer, end-of-sequence tokens)` of a folder or a Hub id, without weights.

    LabError as `load_model`.
    """
    check_model(source)
    folder = Path(source).expanduser()
    with silence_transformers():
        source = str(folder) if folder.is_dir() else source
        settings = load_config(source)
        tokenizer = _load_tokenizer(source)
        try:
            ends = GenerationConfig.from_pretrained(source).eos_token_id
        except OSError:  # it has none
            ends = settings.get_text_config().eos_token_id
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if ends is None:
        return tokenizer, ()
    return tokenizer, tuple(ends) if isinstance(ends, list | tuple) else (int(ends),)


def context_of(model: Any) -> OptionalInt:
    """The most tokens, prompt and response together, that the model was made for; None where it
    names no limit.
    """
    length: OptionalInt = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return length


REWRITTEN = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of models that change the logits after the head's matrix product."""


def plain_head(model: Any) -> bool:
    """Whether the model's logits are its output embedding of the last hidden state, and nothing
    more.
    """
    linear = (
        isinstance(model.get_output_embeddings(), torch.nn.Linear) and model.base_model is not model
    )
    return linear and not any(getattr(model.config, name, None) for name in REWRITTEN)


def check_float32_head(model: Any, key: str) -> None:
    """LabError where `key` wants a head in float32 of a model that has no plain one."""
    if not plain_head(model):
        raise LabError(
            f"{key}: a {model.config.model_type} changes its logits behind its head; leave the"
            " key out"
        )


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """The ids that a model is given for a prompt: a user's turn where there is a chat template,
    else the plain text.

    Plain text begins as the tokenizer begins every text (with <bos>, for some) and never ends with
    the end of sequence.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LabError(
            f"the prompt {text[:40]!a} is not Unicode text (a lone surrogate?) and has no tokens"
        ) from error
    if getattr(tokenizer, "chat_template", None):
        ids = _apply_template(tokenizer, [{"role": "user", "content": text}], tokenize=True)
    else:
        ids = tokenizer.encode(text)
        if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]
    if not ids:
        raise LabError(
            f"the prompt {text[:40]!a} has no tokens in this tokenizer: a model needs one to begin"
            " with"
        )
    return [int(token) for token in ids]


ANSWER = "3f2a9c71-answer"
"""Stands for a turn of the model's where the chat template is asked what comes behind one."""


def encode_reply(tokenizer: Any, text: str, written_ids: Sequence[int], *, chat: bool) -> list[int]:
    """The ids of an environment's reply to what the model wrote, `written_ids`, as they go behind
    it.

    With `chat` and a chat template the reply is a user's message, behind which the model's next
    turn is opened.
    """
    templated = chat and bool(getattr(tokenizer, "chat_template", None))
    if templated:
        roles = {"user": "?", "assistant": ANSWER}
        talk = [
            {"role": role, "content": content} for role, content in [*roles.items(), ("user", text)]
        ]
        text = _apply_template(tokenizer, talk, tokenize=False).partition(ANSWER)[2]
    ids = [int(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    closed = templated and written_ids[-1:] == ids[:1]  # the model has ended its turn itself
    return ids[1:] if closed else ids


def _apply_template(tokenizer: Any, talk: Sequence[Mapping[str, str]], *, tokenize: bool) -> Any:
    try:
        return tokenizer.apply_chat_template(
            list(talk), add_generation_prompt=True, tokenize=tokenize, return_dict=False
        )
    except (
        Exception
    ) as error:  # a template is a program: jinja's errors, and those of what it computes
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise LabError(
            f"the model's chat template cannot be used ({reason}): mend it, or remove it"
        ) from error


def hub_revision(name: str) -> OptionalText:
    """The commit that a Hub model's name stands for now; None where that cannot be told.

    LabError as `load_model`.
    """
    with silence_transformers():
        return getattr(load_config(name), "_commit_hash", None)


def set_thinking(tokenizer: Any, thinking: bool | None) -> None:
    """Have the chat template always, or never, ask for thinking; None leaves it to the template.

    Written into the template itself, so that a saved checkpoint is asked as it was trained, by
    whatever program. LabError where there is no template or it knows no `enable_thinking`.
    """
    if thinking is None:
        return
    template = getattr(tokenizer, "chat_template", None)
    if not isinstance(template, str) or THINKING not in template:
        reason = (
            "the model has no chat template"
            if not template
            else f"the chat template knows no {THINKING}"
        )
        raise LabError(f"rollout.thinking = {str(thinking).lower()}: {reason}; leave the key out")
    assignment = f"{{%- set {THINKING} = {str(thinking).lower()} %}}"
    if not template.startswith(assignment):
        tokenizer.chat_template = assignment + template


def weights_digest(model: torch.nn.Module) -> str:
    """sha256 over every tensor of the state dict, by name: name, dtype, shape and bytes. The device
    does not matter.

    Adapters are left out: what they stand beside is the model that was loaded.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(plain_state(model).items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 over what decides text <-> ids: vocabulary, rules and special tokens, whatever folder
    it came from.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    if backend is not None:
        # How the last call padded and truncated is kept there too; it does not belong to the
        # tokenizer.
        rules.pop("padding", None)
        rules.pop("truncation", None)
    special = {str(role): str(token) for role, token in tokenizer.special_tokens_map.items()}
    split = bool(getattr(tokenizer, "split_special_tokens", False))
    return _sha256(json.dumps([rules, special, split], sort_keys=True))


def chat_template_digest(tokenizer: Any) -> OptionalText:
    """sha256 of the chat template; None where there is none."""
    template = getattr(tokenizer, "chat_template", None)
    return _sha256(json.dumps(template, sort_keys=True)) if template else None


@contextmanager
def silence_transformers() -> Iterator[None]:
    """transformers without progress bars, load reports and the Hub's retries: what they warn of is
    checked here, and is an error."""
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    hub_verbosity = hub_logging.get_verbosity()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _as_refusal(message: str) -> Iterator[None]:
    """LabError of whatever is raised: tokenizers raise bare Exception, weights' and other readers
    each their own.
    """
    try:
        yield
    except Exception as error:
        raise LabError(f"{message}: {first_line(error)}") from error


def load_config(source: str) -> Any:
    """The configuration of a folder or a Hub id. LabError where it cannot be used."""
    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (
        Exception
    ) as error:  # strict configurations, the Hub and the network each raise their own
        if isinstance(error, OSError) and not Path(source).is_dir():
            raise LabError(
                f"the model '{source}' is neither embedded ({', '.join(EMBEDDED)}), nor a folder"
                f" here, nor on the Hub or in its cache: {first_line(error)}"
            ) from error
        raise LabError(
            f"the configuration of the model '{source}' cannot be used: {first_line(error)}"
        ) from error


def _load_tokenizer(source: str) -> Any:
    with _as_refusal(f"the tokenizer of the model '{source}' cannot be loaded"):
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _load_weights(source: str, settings: Any, dtype: torch.dtype) -> Any:
    if type(settings) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise LabError(
            f"the model '{source}' is a {settings.model_type}, which is not a causal language model"
        )
    with _as_refusal(f"the weights of the model '{source}' cannot be loaded"):
        model, report = AutoModelForCausalLM.from_pretrained(
            source, config=settings, dtype=dtype, trust_remote_code=False, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise LabError(
            f"the model '{source}' lacks {len(missing)} of its weights, first {missing[0]}"
        )
    return model


def _settle_special_tokens(name: str, model: Any, tokenizer: Any) -> None:
    ids = tokenizer.get_vocab().values()
    rows = model.get_input_embeddings().weight.shape[0]
    if max(ids, default=-1) >= rows:
        raise LabError(
            f"the tokenizer of '{name}' has token {max(ids)}, the model embeds {rows}: they do not"
            " belong together"
        )
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise LabError(
                f"the tokenizer of '{name}' has neither a pad nor an eos token: batches cannot be"
                " padded"
            )
        tokenizer.pad_token = tokenizer.eos_token
    if model.generation_config.eos_token_id is None:
        model.generation_config.eos_token_id = tokenizer.eos_token_id


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


MOST_WORDS = 120


@contextmanager
def explain_write_error(path: Path, consequence: str) -> Iterator[None]:
    """LabError where what is written to `path` finds no room; `consequence` is what starting the
    study again does.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if (
            isinstance(error, RuntimeError)
            and "inline_container" not in str(error)
            and "riter" not in str(error)
        ):
            raise
        why = (
            error.strerror
            if isinstance(error, OSError)
            else str(error).partition("\n")[0][:MOST_WORDS]
        )
        free = shutil.disk_usage(path.parent).free / 2**20
        raise LabError(
            f"{path} cannot be written ({why}; {free:,.0f} MiB are free there): make room and start"
            f" the study again, {consequence}"
        ) from error


def computing_in(dtype: Dtype, device: str) -> AbstractContextManager[Any]:
    """A context in which matrix products on devices of the type `device` are computed in `dtype`
    (autocast).

    Weights and their gradients keep their own format.
    """
    return nullcontext() if dtype == "float32" else torch.autocast(device, getattr(torch, dtype))


def _grouped_mm(rows_NK: Tensor, weight_EKM: Tensor, *options: Any) -> Tensor:
    """The experts' matrix products as autocast has every other one. Torch has no rule for them
    (pytorch issue 174763): with float32 weights they are computed in float32, on a GPU one expert
    after the other."""
    device = rows_NK.device.type
    dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return torch._grouped_mm(rows_NK.to(dtype), weight_EKM.to(dtype), *options)


_RULES = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
for _key in ("AutocastCPU", "AutocastCUDA", "AutocastXPU"):
    _RULES.impl("_grouped_mm", _grouped_mm, _key)  # type: ignore[no-untyped-call]


def check_device(name: str) -> None:
    """LabError for a device that torch does not know by that name, whether it is there or not."""
    if name == "auto":
        return
    try:
        if hasattr(torch.get_device_module(torch.device(name)), "is_available"):
            return
    except RuntimeError:  # no such name, or none to compute on ("meta")
        pass
    raise LabError(
        f"device = '{name}': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'"
    )


def device_of(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is a GPU, else the CPU.

    LabError where there is none here.
    """
    check_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    module = torch.get_device_module(device)
    count = module.device_count() if module.is_available() else 0
    if (device.index or 0) >= count:
        visible = f"{count} of them" if count else "none"
        raise LabError(
            f"device = '{name}': torch sees {visible} here; use device = 'auto' or 'cpu'"
        )
    try:
        torch.ones(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError) as error:  # of "mps"
        raise LabError(
            f"device = '{name}': it has no float64, in which tokens are drawn; use 'cpu'"
        ) from error
    return device


def check_dtype(key: str, dtype: Dtype, device: torch.device) -> None:
    """LabError where a device cannot compute in `dtype`, with and without autocast, forward and
    backward.
    """
    if dtype == "float32":
        return
    half = getattr(torch, dtype)
    reason = "its autocast gives another precision"
    try:
        with warnings.catch_warnings(), computing_in(dtype, device.type):
            warnings.simplefilter(
                "ignore"
            )  # autocast warns where it does not know the precision, and does nothing
            weight = torch.ones(8, 8, device=device, requires_grad=True)
            product = weight @ weight
            sum_of_both = (product.float() + (weight.to(half) @ weight.to(half)).float()).sum()
            torch.autograd.grad(sum_of_both, weight)
            if product.dtype == half:
                return
    except Exception as error:  # torch raises RuntimeError, AssertionError, NotImplementedError
        reason = first_line(error)
    raise LabError(
        f"{key} = '{dtype}': the device '{device}' cannot compute in it ({reason}); use 'float32'"
    )
