"""Which models are asked in words, and how a reply goes through a chat template."""

import json
from pathlib import Path

import pytest

from gspo_lab.errors import LabError
from gspo_lab.models.builtin_models import byte_tokenizer
from gspo_lab.models.check import check_chat_template, check_hub, check_model
from gspo_lab.models.load import encode_prompt, encode_reply
from gspo_lab.models.wording import has_chat_template, options_for, worded
from gspo_lab.study.schema import TaskTable

TEMPLATE = (
    "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_a_template_is_found_where_tokenizers_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    chats, table = str(tmp_path), TaskTable.model_validate({"name": "addition", "digits": 2})
    assert options_for(table, chats) == {"digits": 2, "words": True}
    assert options_for(table, "tiny-qwen3") == {"digits": 2}
    assert options_for(TaskTable.model_validate({"name": "addition", "words": False}), chats) == {"words": False}
    assert worded("gsm8k", {}, chat=True) == {}
    assert worded("mine.py:grade", {"problems": "x"}, chat=True) == {"problems": "x"}


def test_a_reply_is_a_message_of_the_user() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(encode_reply(tokenizer, "=4", [1], chat=True)) == "=4", "there is no template"
    tokenizer.chat_template = TEMPLATE
    assert tokenizer.decode(encode_prompt(tokenizer, "2+2")) == "<user>2+2\n<assistant>"
    written = tokenizer("two", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(encode_reply(tokenizer, "=4", written, chat=True)) == "\n<user>=4\n<assistant>"
    assert tokenizer.decode(encode_reply(tokenizer, "=4", written, chat=False)) == "=4"
    closed = [*written, *tokenizer("\n", add_special_tokens=False)["input_ids"]]
    assert tokenizer.decode(encode_reply(tokenizer, "=4", closed, chat=True)) == "<user>=4\n<assistant>", (
        "the model has closed its turn itself"
    )


@pytest.mark.parametrize("template", ["{{ messages[0].content.nothing() }}", "{% for %}"])
def test_a_template_that_fails_is_one_line(tmp_path: Path, template: str) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    check_chat_template(str(tmp_path))
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(LabError, match=r"chat template of the model '.*' cannot be used: ") as refused:
        check_chat_template(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_weights_in_gguf_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "SmolLM2.Q4_1.gguf").write_bytes(b"GGUF")
    for config in (False, True):  # llama.cpp's folders have no config.json, the Hub's may
        if config:
            (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
        with pytest.raises(LabError, match=r"are GGUF \(SmolLM2.Q4_1.gguf\), which cannot be trained; read them with"):
            check_model(str(tmp_path))


def test_a_model_that_is_nowhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", _unreachable)
    with pytest.raises(LabError) as refused:
        check_hub("models/smollm2")
    assert str(refused.value) == (
        f"no model 'models/smollm2': there is no such folder, nothing of it in the Hub's cache {tmp_path}, and the Hub "
        "cannot be asked (no route to host); correct the name, or give a folder"
    )
    check_hub("tiny-qwen3")
    check_hub(str(tmp_path))
    snapshot = tmp_path / "models--models--smollm2/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    check_hub("models/smollm2")


def _unreachable(*_: object, **__: object) -> None:
    raise ConnectionError("no route to host\nmore")
