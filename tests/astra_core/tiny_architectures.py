"""Random models of many architectures, a few thousand weights each, for the tests of the engine."""

from transformers import AutoConfig, AutoModelForCausalLM

from astra_core.models.language_model import LanguageModel
from astra_core.seeding import torch_seeded
from astra_parts.testing import tiny_language_model

# Of the tiny tokenizer; the spread is that of ``astra_parts.testing.tiny``.
COMMON = {
    "vocab_size": 20,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
    "initializer_range": 0.3,
}
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
}
GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}
# Shorter than the contexts of the tests.
WINDOW = 4
MIXED = ["sliding_attention", "full_attention"]

QUICK = {
    "gpt2": ("gpt2", {"n_positions": 128, "n_embd": 16, "n_layer": 2, "n_head": 2}),
    "llama tied": ("llama", SIZES | {"tie_word_embeddings": True}),
    "llama untied": ("llama", SIZES | {"tie_word_embeddings": False}),
    "llama grouped": ("llama", GROUPED),
    "qwen2": ("qwen2", GROUPED),
    "qwen2 mixed": (
        "qwen2",
        GROUPED | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", GROUPED | {"head_dim": 8}),
    "mistral": ("mistral", GROUPED | {"sliding_window": WINDOW}),
    "mixtral": ("mixtral", GROUPED | {"num_local_experts": 2, "sliding_window": WINDOW}),
    "gemma3": (
        "gemma3_text",
        GROUPED | {"head_dim": 8, "sliding_window": WINDOW, "layer_types": MIXED},
    ),
    "gpt_neox": ("gpt_neox", SIZES | {"rotary_pct": 0.5}),
    "phi": ("phi", SIZES),
    "phi3": ("phi3", GROUPED),
    "opt": (
        "opt",
        {
            "hidden_size": 16,
            "ffn_dim": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 128,
            "word_embed_proj_dim": 16,
            "init_std": 0.3,
        },
    ),
    "falcon rotary": (
        "falcon",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "alibi": False},
    ),
}
"""Those that can be told what to see."""

SCALED = {
    "granite": ("granite", SIZES | {"logits_scaling": 4.0, "residual_multiplier": 0.5}),
    "cohere": ("cohere", SIZES | {"logit_scale": 0.25}),
}
"""Those that can, but do something to the logits of their heads."""

PLAIN = {
    "bloom": ("bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "falcon alibi": (
        "falcon",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "alibi": True},
    ),
    "gemma2": ("gemma2", GROUPED | {"head_dim": 8, "sliding_window": WINDOW, "layer_types": MIXED}),
    "gptj": (
        "gptj",
        {"n_positions": 128, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4},
    ),
    # Says that it has a window and has none.
    "llama windowed": ("llama", SIZES | {"sliding_window": 4096}),
    "llama4": ("llama4_text", SIZES | {"head_dim": 8, "num_key_value_heads": 1}),
}
"""Those that cannot, and are read the plain way."""

LONE = {
    "mamba": ("mamba", {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "expand": 2}),
    "lfm2": ("lfm2", GROUPED | {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3}),
}
"""Those that keep a state, and are read alone and from the start."""

_MAMBA = {
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
_DELTA = GROUPED | {
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}

HYBRID = {
    "falcon_h1": ("falcon_h1", GROUPED | _MAMBA | {"head_dim": 8, "mamba_d_ssm": 32}),
    "jamba": (
        "jamba",
        GROUPED
        | _EXPERTS
        | {
            "attn_layer_offset": 1,
            "attn_layer_period": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        _DELTA | _EXPERTS | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    ),
    "bamba": ("bamba", GROUPED | _MAMBA | {"attn_layer_indices": [1], "mamba_expand": 2}),
    "granitemoehybrid": (
        "granitemoehybrid",
        GROUPED
        | _MAMBA
        | {
            "mamba_expand": 2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "shared_intermediate_size": 16,
        },
    ),
    "mamba2": (
        "mamba2",
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 4,
            "head_dim": 8,
            "expand": 2,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "rwkv": (
        "rwkv",
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "attention_hidden_size": 16,
            "intermediate_size": 32,
            "context_length": 128,
        },
    ),
}
"""More of those; they take longer."""

ARCHITECTURES = HYBRID | QUICK | SCALED | PLAIN | LONE


def tiny_model(name, *, seed=0, **changes):
    """A random model of an architecture of the table."""
    kind, options = ARCHITECTURES[name]
    with torch_seeded(seed):
        config = AutoConfig.for_model(kind, **COMMON | options | changes)
        return AutoModelForCausalLM.from_config(config).eval()


def tiny_speaker(name, *, seed=0, **changes):
    """The same as a ``LanguageModel`` that speaks the words of the tiny models."""
    tokenizer = tiny_language_model().tokenizer
    return LanguageModel(tiny_model(name, seed=seed, **changes), tokenizer)
