"""Tiny chat models, and a System in which attacker and target read chat templates."""

from dataclasses import replace

from astra_core.config import AttackerConfiguration, GenerationConfiguration, SystemConfiguration
from astra_core.registry import build
from astra_core.rollout import Prompt
from astra_core.seeding import torch_seeded
from astra_core.system import System
from astra_core.target import Surroundings
from astra_core.targets.causal_lm import CausalLM
from astra_parts.testing import tiny_language_model

MARKS = "<|im_start|>", "<|im_end|>", "<think>", "</think>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENED = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
SHORT = GenerationConfiguration(max_new_tokens=5)
PROMPTS = tuple(
    Prompt.of(text, {"goal": f"goal {text}", "category": "rude"}) for text in ("so late", "why now")
)


def chat_model(seed=3, *, kind="llama", template=CHATML, is_trained=False):
    """A byte-level model of 512 positions with marks for turns and reasoning."""
    model = tiny_language_model(
        seed, kind=kind, vocabulary=None, max_positions=512, is_trained=is_trained
    )
    model.tokenizer.add_special_tokens({"additional_special_tokens": [*MARKS]})
    with torch_seeded(seed):
        model.model.resize_token_embeddings(len(model.tokenizer), mean_resizing=False)
    model.model.requires_grad_(is_trained)
    model.tokenizer.chat_template = template
    end = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.model.generation_config.eos_token_id = [0, end]
    return model


def chat_config(*, attacker=None, **changes):
    """The attacker reads its template unless told otherwise."""
    told = AttackerConfiguration.read({"format": "template", **(attacker or {})}, where="attacker")
    settings = {"max_context_tokens": 450, "probe": SHORT, "response": SHORT, **changes}
    return SystemConfiguration(attacker=told, **settings)


def chat_system(
    *, kind="llama", config=None, template=CHATML, is_same=False, reference_seed=4, **options
):
    """A templated attacker against a templated target, which may be the reference."""
    config = config or chat_config()
    attacker = chat_model(4, kind=kind, template=template, is_trained=True)
    reference = chat_model(reference_seed, kind=kind, template=template)
    victim = reference if is_same else chat_model(5, kind=kind)
    around = Surroundings(config, language_model=victim)
    target = CausalLM(CausalLM.Options(**{"format": "template", **options}), surroundings=around)
    scorer = build("scorer", counting(config))
    return System.of(attacker, target, reference, scorer=scorer, config=config)


def counting(config):
    """The scorer that the tests share: it counts letters that bytes often make."""
    return config.scorer.model_copy(update={"name": "phrases", "options": {"phrases": ["a", "e"]}})


def with_settings(system, **changes):
    """The same System with other settings."""
    return replace(system, config=system.config.model_copy(update=changes))
