"""Chat templates of local folders, tried on a conversation before any weights load."""

from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.registry import find
from tasks.params.models import ModelSource
from tasks.params.schema import Params


def check_templates(params: Params) -> None:
    """Checks that the local tokenizers format a conversation as ``system`` asks.

    A stage fetches those of the hub or of a registered version, and tries them then.

    Raises ConfigurationError if a tokenizer has no chat template, or its template rejects it.
    """
    system, models = params.system, params.models
    attacker = system.attacker
    if attacker.format != "separator":
        told = {"system": attacker.system_prompt, "template": attacker.template}
        _try(models.attacker, attacker.format, where="system.attacker", **told)
    if system.target.name != "causal_lm":
        return
    own = find("target", system.target).options.model_dump()
    if own["format"] != "separator":
        where = "system.target.options"
        _try(models.target, own["format"], where=where, system=own["system_prompt"])


def _try(
    source: ModelSource,
    chat_format: str,
    *,
    where: str,
    system: str | None,
    template: str | None = None,
) -> None:
    if source.source == "builtin" and chat_format == "template" and template is None:
        msg = (
            f"{where}.format must be 'separator' for the builtin model, which has no chat "
            "template, got 'template'; name a chat model in models"
        )
        raise ConfigurationError(msg)
    if source.source != "folder" or source.path is None:
        return
    tokenizer = _tokenizer(source.path)
    if tokenizer is None:
        return
    tokenizer.chat_template = template or tokenizer.chat_template
    if chat_format == "auto" and not tokenizer.chat_template:
        return
    from astra_core.models.marked_template import line_ends, marked_turns

    (marked_turns if template is None else line_ends)(tokenizer, system=system, where=where)


def _tokenizer(folder: Path) -> Any:
    """The folder's tokenizer; None where it cannot be read, which loading the model reports."""
    from astra_core.models.tokenizers import load_tokenizer

    try:
        return load_tokenizer(folder)
    except Exception:  # noqa: BLE001 - the tokenizers library raises plain exceptions
        return None
