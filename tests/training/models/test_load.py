import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from calling import lab_error
from laboratory import json_of
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers.utils import logging

from gspo_lab.common.atomic_files import SUMS, write_sums
from gspo_lab.common.errors import LabError
from gspo_lab.study.schema import TaskTable
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.models.check import (
    EMBEDDED,
    check_chat_template,
    check_hub,
    check_model,
    is_moe,
)
from gspo_lab.training.models.load import (
    chat_template_digest,
    encode_prompt,
    encode_reply,
    load_model,
    load_tokenizer,
    silence_transformers,
    tokenizer_digest,
    weights_digest,
)
from gspo_lab.training.models.wording import has_chat_template, options_for, worded

SMALL = {"layers": 1, "width": 16, "experts": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small saved mixture of experts."""
    path = tmp_path / "model"
    initial = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    with silence_transformers():
        assert not logging.is_progress_bar_enabled()
        build("tiny-qwen3-moe", 0, SMALL).save_pretrained(path)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == initial
    byte_tokenizer().save_pretrained(path)
    return path


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json_of(path) | values))


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_name_loads_as_built_from_the_seed(name: str) -> None:
    check_model(name)
    model, tokenizer = load_model(name, dtype="float32", device="cpu", seed=3)
    assert weights_digest(model) == weights_digest(build(name, 3))
    assert tokenizer.pad_token == "<pad>"
    assert not model.training


@pytest.mark.parametrize("given_as", ["name", "checkpoint"])
def test_a_folder_loads_as_saved(
    folder: Path, given_as: str, capfd: pytest.CaptureFixture[str]
) -> None:
    check_model(str(folder))
    name, checkpoint = (str(folder), None) if given_as == "name" else ("tiny-qwen3-moe", folder)
    model, tokenizer = load_model(name, dtype="float32", device="cpu", checkpoint=checkpoint)
    complete = build("tiny-qwen3-moe", 0, SMALL)
    assert weights_digest(model) == weights_digest(complete)
    rounded, _ = load_model(name, dtype="bfloat16", device="cpu", checkpoint=checkpoint)
    assert (
        weights_digest(rounded)
        == weights_digest(complete.to(torch.bfloat16))
        != weights_digest(model)
    )
    assert tokenizer_digest(tokenizer) == tokenizer_digest(byte_tokenizer())
    assert model.config._experts_implementation == "grouped_mm"
    assert model.generation_config.eos_token_id == 257
    assert capfd.readouterr().err == ""


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str, instead_of: str = "") -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / name).write_text(text)
        if instead_of:
            (folder / instead_of).unlink()

    return harm


def _cut(name: str, share: float, ending: bytes = b"") -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))] + ending)

    return harm


def _garble(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"data_offsets"', b'"dat@_offsets"', 1))


def _bin(folder: Path) -> None:
    """Weights as torch.save leaves them, and half of that."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    check_model(str(folder))
    _cut("pytorch_model.bin", 0.5)(folder)


def _without(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return harm


def _shards(*, lacks: bool = False, cut: bool = False) -> Callable[[Path], None]:
    """Two shards with their index, as save_pretrained makes them of large models."""

    def harm(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        start = "model-00001-of-00002.safetensors"
        later = "model-00002-of-00002.safetensors"
        places = {name: later if "norm" in name else start for name in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        for file in (start, later):
            save_file(
                {name: tensors[name] for name in tensors if places[name] == file}, folder / file
            )
        check_model(str(folder))
        if lacks:
            retained = {name: tensor for name, tensor in tensors.items() if places[name] == later}
            del retained["model.norm.weight"]
            save_file(retained, folder / later)
        if cut:
            _cut(later, 0.9)(folder)

    return harm


def _more_tokens(count: int) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        tokenizer = byte_tokenizer()
        tokenizer.add_tokens([f"<extra{i}>" for i in range(count)])
        tokenizer.save_pretrained(folder)

    return harm


def _sparse(name: str, start: bytes, size: int) -> Callable[[Path], None]:
    """A file that says it is large and takes no room."""

    def harm(folder: Path) -> None:
        (folder / name).write_bytes(start)
        os.truncate(folder / name, size)

    return harm


def _index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"")


CHEAP = [
    pytest.param(_remove("config.json"), "no config.json", id="no config"),
    pytest.param(_write("config.json", "{"), "cannot be read", id="broken config"),
    pytest.param(_write("config.json", "[1]"), "no JSON object", id="list as config"),
    pytest.param(_write("config.json", "{}"), "no model_type", id="empty config"),
    pytest.param(
        lambda f: change_config(f, model_type={"a": 1}), "no model_type", id="object as model_type"
    ),
    pytest.param(
        _sparse("config.json", b"{", 30 << 30),
        "is not a transformers configuration: 32,",
        id="huge config",
    ),
    pytest.param(_remove("model.safetensors"), "no weights", id="no weights"),
    pytest.param(_index, "1 of 2 weight files are missing.*model-00002", id="missing shard"),
    pytest.param(
        _write("model.safetensors", "x" * 20),
        "model.safetensors is cut off or damaged",
        id="text",
    ),
    pytest.param(
        _write("model.safetensors", "\2\0\0\0\0\0\0\0{}"),
        "model.safetensors holds no tensor",
        id="no tensor",
    ),
    pytest.param(
        _write("model.safetensors", ""),
        "model.safetensors is cut off or damaged",
        id="empty weights",
    ),
    pytest.param(
        _cut("model.safetensors", 0.5),
        "model.safetensors is cut off or damaged",
        id="half a file",
    ),
    pytest.param(
        _cut("model.safetensors", 1, b"more"),
        "model.safetensors is cut off or damaged",
        id="too long",
    ),
    pytest.param(_garble, "model.safetensors is cut off or damaged", id="garbled header"),
    pytest.param(_bin, "pytorch_model.bin is cut off: it has no end", id="half a .bin"),
    pytest.param(
        _shards(lacks=True),
        "lacks the tensor model.norm.weight, which the index says",
        id="shard of others",
    ),
    pytest.param(
        _shards(cut=True), "model-00002-of-00002.safetensors is cut off", id="half a shard"
    ),
    pytest.param(
        _write("model.safetensors.index.json", "{}", "model.safetensors"),
        "as an index of",
        id="no index",
    ),
    pytest.param(
        lambda f: change_config(f, num_hidden_layers=2),
        "1 of 2 layers, first layer 1",
        id="layer gone",
    ),
    pytest.param(
        lambda f: change_config(f, num_hidden_layers=10**12),
        "999999999999 of 1000000000000 layers, first",
        id="layers",
    ),
    pytest.param(
        _sparse("model.safetensors", (30 << 30).to_bytes(8, "little"), 31 << 30),
        "model.safetensors is cut off or damaged",
        id="huge header",
    ),
    pytest.param(_remove("tokenizer.json"), "no tokenizer in", id="no tokenizer"),
    pytest.param(
        _write("tokenizer.json", "{"), "tokenizer.json cannot be read", id="broken tokenizer"
    ),
    pytest.param(
        _more_tokens(20),
        "has token 277, the model embeds 264: they do not belong",
        id="other tokenizer",
    ),
]

COSTLY = [
    pytest.param(
        lambda f: change_config(f, model_type="qwen99"),
        "configuration.*qwen99",
        id="unknown family",
    ),
    pytest.param(
        lambda f: change_config(f, model_type="vit"),
        "vit, which is not a causal",
        id="no language model",
    ),
    pytest.param(
        lambda f: change_config(f, num_hidden_layers="two"),
        "configuration.*num_hidden",
        id="bad value",
    ),
    pytest.param(
        lambda f: change_config(f, hidden_size=32), "weights.*cannot be loaded", id="other width"
    ),
    pytest.param(
        _without("model.norm.weight"),
        "lacks 1 of its weights, first model.norm.weight",
        id="tensor gone",
    ),
    pytest.param(
        _write("tokenizer.json", "{}"), "tokenizer.*cannot be loaded", id="broken tokenizer"
    ),
    pytest.param(
        lambda f: change_config(f, model_type="own", auto_map={"AutoConfig": "a.B"}),
        "configuration",
        id="own code",
    ),
]


@pytest.mark.parametrize(("harm", "message"), CHEAP)
def test_what_is_seen_without_loading(
    folder: Path, harm: Callable[[Path], None], message: str
) -> None:
    harm(folder)
    with lab_error(message) as caught:
        check_model(str(folder))
    assert "\n" not in str(caught.value)
    with lab_error(message):
        load_model(str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize(("harm", "message"), COSTLY)
def test_what_only_loading_shows(folder: Path, harm: Callable[[Path], None], message: str) -> None:
    harm(folder)
    check_model(str(folder))
    with lab_error(message) as caught:
        load_model(str(folder), dtype="float32", device="cpu")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        (
            "model.safetensors",
            lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        ),
        ("config.json", lambda content: content.replace(b"1e-06", b"1e-05")),
        ("tokenizer_config.json", None),
    ],
)
def test_what_the_lab_wrote_and_is_not_so_any_more_is_told(
    folder: Path, name: str, harm: Callable[[bytes], bytes] | None
) -> None:
    write_sums(folder)
    assert (
        subprocess.run(
            ["sha256sum", "--check", "--quiet", SUMS], cwd=folder, check=False
        ).returncode
        == 0
    )
    load_model(str(folder), dtype="float32", device="cpu")
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if harm is not None:
        assert harm(content) != content
        (folder / name).write_bytes(harm(content))
    for source, checkpoint in ((str(folder), None), ("tiny-qwen3-moe", folder)):
        with lab_error(f"{name} is not what SHA256SUMS beside it says") as refusal:
            load_model(source, dtype="float32", device="cpu", checkpoint=checkpoint)
        assert "\n" not in str(refusal.value)


def test_a_tokenizer_without_pad_pads_with_eos_and_without_both_is_refused(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = json_of(path)
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    _, tokenizer = load_model(str(folder), dtype="float32", device="cpu")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 257
    del settings["eos_token"]
    path.write_text(json.dumps(settings))
    with lab_error("neither a pad nor an eos"):
        load_model(str(folder), dtype="float32", device="cpu")


def test_a_tokenizer_as_large_as_the_embedding_fits(folder: Path) -> None:
    _more_tokens(6)(folder)  # 258 + 6 = 264 rows
    check_model(str(folder))
    load_model(str(folder), dtype="float32", device="cpu")


def test_a_vocabulary_larger_than_the_embedding_is_refused(folder: Path) -> None:
    _more_tokens(20)(folder)
    rules = json_of(folder / "tokenizer.json")
    added = {token["content"]: token["id"] for token in rules["added_tokens"]}
    (folder / "vocab.json").write_text(json.dumps(rules["model"]["vocab"] | added))
    (folder / "tokenizer.json").unlink()
    with lab_error("has token 277, the model embeds 264"):
        check_model(str(folder))


def test_a_model_that_knows_no_end_takes_the_tokenizers(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change_config(folder, eos_token_id=None)
    model, _ = load_model(str(folder), dtype="float32", device="cpu")
    assert model.generation_config.eos_token_id == 257


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-qwen", "did you mean 'tiny-qwen3'"),
        ("./no/such/folder", "no model folder"),
        ("~nobody-of-that-name/model", "no such home folder"),
        ("a b", "no model folder"),
        ("", "no model folder"),
        (__file__, "is a file"),
    ],
)
def test_names_that_can_be_no_model(name: str, message: str) -> None:
    with lab_error(message):
        check_model(name)


def test_a_hub_id_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    check_model("somebody/some-model")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with lab_error(r"neither embedded .*, nor a folder here, nor on the Hub or in its cache"):
        load_model("somebody/no-such-model-here", dtype="float32", device="cpu")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with lab_error("nor in the Hub's cache"):
        check_model("somebody/some-model")
    (tmp_path / "models--somebody--some-model").mkdir()
    check_model("somebody/some-model")


def test_is_moe_reads_the_configuration(folder: Path, tmp_path: Path) -> None:
    assert {name: is_moe(name) for name in EMBEDDED} == {
        "tiny-qwen3": False,
        "tiny-qwen3-moe": True,
        "tiny-qwen3-moe-fresh": True,
        "tiny-olmoe": True,
    }
    assert is_moe(str(folder)) is True
    assert is_moe("somebody/some-model") is None
    for config, expected in [
        ({"model_type": "qwen3"}, False),
        ({"model_type": "granitemoe", "num_local_experts": 0}, False),
        ({"model_type": "jamba", "num_experts": 1}, False),
        ({"model_type": "deepseek_v3", "n_routed_experts": 256}, True),
        ({"model_type": "dots", "n_routed_experts": None}, False),
        ({"model_type": "some_vl", "text_config": {"num_experts": 128}}, True),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert is_moe(str(tmp_path)) is expected, config


def test_the_cheap_check_needs_no_package_and_names_what_adapters_and_small_moments_need() -> None:
    """In an interpreter that finds no installed package at all."""
    code = """from gspo_lab.training.models import check
check.check_model("tiny-qwen3-moe")
check.check_lora(0)
for call in (lambda: check.check_lora(4), check.check_eight_bit):
    try: call()
    except check.LabError as error: print(error)"""
    root = str(Path(__file__).parents[3])
    process = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert process.stdout.splitlines() == [
        "update.lora_rank = 4 needs the package peft: pip install 'gspo-lab[lora]'",
        (
            "update.optimizer = 'adamw-8bit' needs the package bitsandbytes: pip install"
            " 'gspo-lab[8bit]'"
        ),
    ]


def test_the_weights_digest_sees_one_bit_a_name_a_shape_and_a_type() -> None:
    model = build("tiny-qwen3", 0, SMALL)
    initial = weights_digest(model)
    weight = model.model.layers[0].mlp.up_proj.weight.data
    weight.view(torch.int32)[3, 5] ^= 1
    assert weights_digest(model) != initial
    weight.view(torch.int32)[3, 5] ^= 1
    assert weights_digest(model) == initial

    digests = {
        weights_digest(torch.nn.ParameterDict({name: torch.nn.Parameter(value)}))
        for name, value in [
            ("a", torch.zeros(2, 3)),
            ("b", torch.zeros(2, 3)),
            ("a", torch.zeros(3, 2)),
            ("a", torch.zeros(2, 3, dtype=torch.float16)),
            ("a", torch.tensor(0.0)),
            ("a", torch.tensor(-0.0)),
        ]
    }
    assert len(digests) == 6


def test_the_tokenizer_digest_sees_rules_and_specials_but_not_its_last_use() -> None:
    tokenizer = byte_tokenizer()
    initial = tokenizer_digest(tokenizer)
    tokenizer(["a", "bcd"], padding=True, truncation=True, max_length=2)
    assert tokenizer_digest(tokenizer) == initial
    tokenizer.pad_token = "<eos>"
    assert tokenizer_digest(tokenizer) != initial
    other = byte_tokenizer()
    other.add_tokens(["12"])
    assert tokenizer_digest(other) != initial


def test_prompts_go_through_the_chat_template_where_there_is_one() -> None:
    tokenizer = byte_tokenizer()
    assert encode_prompt(tokenizer, "1+1=") == [49, 43, 49, 61]
    assert chat_template_digest(tokenizer) is None
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if"
        " add_generation_prompt %}[bot]{% endif %}"
    )
    assert tokenizer.decode(encode_prompt(tokenizer, "1+1=")) == "[user]1+1=[bot]"
    earlier = chat_template_digest(tokenizer)
    tokenizer.chat_template += " "
    assert earlier is not None
    assert chat_template_digest(tokenizer) != earlier


def test_a_plain_prompt_keeps_bos_and_drops_an_eos_that_the_tokenizer_appends(folder: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<pad> $A <eos>", special_tokens=[("<pad>", 256), ("<eos>", 257)]
    )
    assert tokenizer.encode("a") == [256, 97, 257]
    assert encode_prompt(tokenizer, "a") == [256, 97]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ raise_exception('no system turn') }}", "TemplateError: no system turn"),
        ("{{ messages[7].content }}", "UndefinedError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ],
)
def test_a_chat_template_that_breaks_is_one_line(template: str, reason: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with lab_error(f"chat template cannot be used .{reason}") as caught:
        encode_prompt(tokenizer, "1+1=")
    assert "\n" not in str(caught.value)
    for text, message in (("", "has no tokens"), ("a\ud800b", "lone surrogate")):
        with lab_error(message):
            encode_prompt(byte_tokenizer(), text)


def test_a_tokenizer_is_had_without_the_weights(tmp_path: Path) -> None:
    model, tokenizer = load_model("tiny-qwen3", dtype="float32", device="cpu")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    actual, ends = load_tokenizer(str(tmp_path))
    assert ends == (257,)
    assert actual.encode("1+2=") == tokenizer.encode("1+2=")
    (tmp_path / "generation_config.json").unlink()
    assert load_tokenizer(str(tmp_path))[1] == (257,)
    with pytest.raises(LabError):
        load_tokenizer(str(tmp_path / "nowhere"))
    with lab_error(r"no checkpoint folder .*gone"):
        load_model("tiny-qwen3", dtype="float32", device="cpu", checkpoint=tmp_path / "gone")


TEMPLATE = (
    "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_a_template_is_found_where_tokenizers_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    byte_tokenizer().save_pretrained(folder)
    assert not has_chat_template(str(folder))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert has_chat_template(str(folder))
    assert not has_chat_template("tiny-qwen3")
    assert not has_chat_template("somebody/chats"), "not in the cache: not known"
    snapshot = tmp_path / "cache/models--somebody--chats/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    assert has_chat_template("somebody/chats")


def test_built_in_tasks_alone_are_put_into_words(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    chats = str(tmp_path)
    table = TaskTable.model_validate({"name": "addition", "digits": 2})
    assert options_for(table, chats) == {"digits": 2, "words": True}
    assert options_for(table, "tiny-qwen3") == {"digits": 2}
    assert options_for(TaskTable.model_validate({"name": "addition", "words": False}), chats) == {
        "words": False
    }
    assert worded("gsm8k", {}, chat=True) == {}
    assert worded("mine.py:grade", {"problems": "x"}, chat=True) == {"problems": "x"}


def test_a_reply_is_a_message_of_the_user() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(encode_reply(tokenizer, "=4", [1], chat=True)) == "=4", (
        "there is no template"
    )
    tokenizer.chat_template = TEMPLATE
    assert tokenizer.decode(encode_prompt(tokenizer, "2+2")) == "<user>2+2\n<assistant>"
    written = tokenizer("two", add_special_tokens=False)["input_ids"]
    assert (
        tokenizer.decode(encode_reply(tokenizer, "=4", written, chat=True))
        == "\n<user>=4\n<assistant>"
    )
    assert tokenizer.decode(encode_reply(tokenizer, "=4", written, chat=False)) == "=4"
    closed = [*written, *tokenizer("\n", add_special_tokens=False)["input_ids"]]
    assert (
        tokenizer.decode(encode_reply(tokenizer, "=4", closed, chat=True))
        == "<user>=4\n<assistant>"
    ), "the model has closed its turn itself"


@pytest.mark.parametrize("template", ["{{ messages[0].content.nothing() }}", "{% for %}"])
def test_a_template_that_fails_is_one_line(tmp_path: Path, template: str) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    check_chat_template(str(tmp_path))
    (tmp_path / "chat_template.jinja").write_text(template)
    with lab_error(r"chat template of the model '.*' cannot be used: ") as refused:
        check_chat_template(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_weights_in_gguf_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "SmolLM2.Q4_1.gguf").write_bytes(b"GGUF")
    for config in (False, True):  # llama.cpp's folders have no config.json, the Hub's may
        if config:
            (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
        with lab_error(
            r"are GGUF \(SmolLM2.Q4_1.gguf\), which cannot be trained; read them with",
        ):
            check_model(str(tmp_path))


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "config.json"])
def test_an_adapter_is_one_line_that_says_to_merge_it(tmp_path: Path, name: str) -> None:
    """A folder of PEFT's, as it was saved and beside a configuration."""
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen3-0.6B"}')
    (tmp_path / name).write_text('{"model_type": "qwen3"}')
    with lab_error(r"is an adapter of 'Qwen/Qwen3-0.6B', not a model: merge it"):
        check_model(str(tmp_path))


def test_a_model_that_is_nowhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", _unreachable)
    with pytest.raises(LabError) as refused:
        check_hub("models/smollm2")
    assert (
        str(refused.value)
        == "no model 'models/smollm2': there is no such folder, nothing of it in the Hub's cache"
        f" {tmp_path}, and the Hub cannot be asked (no route to host); correct the name, or give"
        " a folder"
    )
    check_hub("tiny-qwen3")
    check_hub(str(tmp_path))
    snapshot = tmp_path / "models--models--smollm2/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    check_hub("models/smollm2")


def _unreachable(*_: object, **__: object) -> None:
    raise ConnectionError("no route to host\nmore")
