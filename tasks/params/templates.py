"""What the local tokenizers and models must have: chat templates, and weights that are named."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import ConfigurationError
from astra_core.registry import resolve
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import Params
from tasks.params.targets import targets_of

if TYPE_CHECKING:
    from torch.nn import Module, Parameter


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
    for place, target in targets_of(system.target).items():
        own = target.options
        if target.name == "causal_lm" and own.format != "separator":
            where = f"{place}.options"
            _try(models.target, own.format, where=where, system=own.system_prompt)


def template_left_out(params: Params) -> str:
    """What to say of a chat model that is asked as if it had no template; nothing of others."""
    source = params.models.target
    formats = [
        own.options.format
        for own in targets_of(params.system.target).values()
        if own.name == "causal_lm"
    ]
    if source.path is None or "separator" not in formats or not has_template(source.path):
        return ""
    return (
        f"{source.path} is a chat model, and system.target.options.format: separator leaves its "
        "template out; the preset local_chat has what fits one (format, temperature, lengths)"
    )


def has_template(folder: Path) -> bool:
    """Whether the folder holds a chat template, in the tokenizer's file or in one of its own."""
    own = read_object(folder / "tokenizer_config.json").get("chat_template")
    return bool(own) or any(folder.glob("chat_template*"))


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}


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
    from astra_core.models.marked_template import line_ends, marked_turns
    from astra_core.models.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(source.path)
    tokenizer.chat_template = template or tokenizer.chat_template
    if chat_format == "auto" and not tokenizer.chat_template:
        return
    (marked_turns if template is None else line_ends)(tokenizer, system=system, where=where)


_MOST_OWN = 64  # weights of an algorithm, such as a value head's; their number is not known yet


def check_weight_names(params: Params) -> None:
    """Checks that ``training.parts``, ``training.lora`` and ``own_weights`` name weights.

    A stage fetches a model of the hub or of a registered version, and tries them then.

    Raises ConfigurationError if a pattern is found in no name, or there is no such layer.
    """
    training, agents = params.training, params.system.agents
    own = {name: agent.own_weights for name, agent in agents.items() if agent.own_weights}
    if not (training.parts or training.lora or own):
        return
    model = _without_memory(params.models)
    if model is None:
        return
    from astra_core.models.lora import add_adapters
    from astra_core.models.sharing import share_weights
    from astra_core.training.optimization.parts import parameter_groups

    if training.lora is not None:
        # Their names do not depend on it, and no memory is asked for.
        add_adapters(model, training.lora.model_copy(update={"rank": 1}), seed=0)
    for name, pattern in own.items():
        share_weights(model, model, own=pattern, where=f"system.agents.{name}.own_weights")
    # With several agents, some have only a part of these weights.
    if not params.system.roles:
        extra = _own_weights(params.training.algorithm.name)
        parameter_groups(model, extra, weight_decay=0.0, parts=training.parts)


def _without_memory(models: ModelsConfiguration) -> "Module | None":
    """The attacker without numbers; None where it cannot be made, which loading it reports."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

    attacker = models.attacker
    try:
        if attacker.source == "builtin":
            # What it is called depends on nothing else.
            shape = LlamaConfig(
                num_hidden_layers=models.builtin.num_layers, tie_word_embeddings=True
            )
        elif attacker.source == "folder":
            shape = AutoConfig.from_pretrained(str(attacker.path), local_files_only=True)
        else:
            return None
        with torch.device("meta"):
            model: Module = AutoModelForCausalLM.from_config(shape)
    except Exception:  # noqa: BLE001 - a damaged folder may raise anything
        return None
    return model


def _own_weights(algorithm: str) -> "list[Parameter]":
    from torch import empty
    from torch.nn import Parameter

    from astra_core.algorithm import Algorithm

    has_own = resolve("algorithm", algorithm).parameters is not Algorithm.parameters
    return [Parameter(empty(1, device="meta")) for _ in range(_MOST_OWN)] if has_own else []
