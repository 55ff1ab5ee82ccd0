"""Whether a model is asked in sentences: the built-in tasks do so where it has a chat template.

Without torch.
"""

from pathlib import Path

from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.study.schema import TaskTable
from gspo_lab.tasks import TASKS, WORDS
from gspo_lab.training.models.check import EMBEDDED, hub_folder, model_folder, read_json_object

TEMPLATES = ("chat_template.jinja", "chat_template.json")
"""Files that hold a template beside the tokenizer; older tokenizers have it in
tokenizer_config.json.
"""


def has_chat_template(model: str) -> bool:
    """Whether a model folder, or a Hub id that lies in the cache, has a chat template.

    An embedded model has none.
    """
    if model in EMBEDDED:
        return False
    folder = model_folder(model)
    folders = sorted(hub_folder(model).glob("snapshots/*")) if folder is None else [folder]
    return any(_has_template(folder) for folder in folders)


def options_for(table: TaskTable, model: str) -> JsonObject:
    """A task's options with `words` as the model needs it, where the study does not set it."""
    return worded(table.name, table.options, chat=table.name in TASKS and has_chat_template(model))


def worded(name: str, options: JsonMapping, *, chat: bool) -> JsonObject:
    """The options of a task with `words` set for a chat model; of tasks that have no such option as
    they are.
    """
    return {WORDS: True, **options} if chat and name in TASKS else dict(options)


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in TEMPLATES):
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(
        read_json_object(settings, "a tokenizer's configuration").get("chat_template")
    )
