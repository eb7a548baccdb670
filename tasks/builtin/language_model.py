"""A language model of about a million parameters, trained in a minute on our own dialogues.

It is the default attacker, target and reference: small enough for two CPU cores, and it answers in
a tone that depends on what was said before. A document is ``u1<|end|>u2<|end|>...``, without a
token at its beginning, so any conversation cut after an ``<|end|>`` is a valid context.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from astra_core.config import Count, Positive, Probability, Section
from astra_core.errors import ConfigurationError, DataError
from astra_core.files import draft_folder_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD = "<|pad|>"
END = "<|end|>"

# What the loss does not count; the number that transformers' models expect.
_IGNORED = -100
# Batches whose documents are sorted by length together: little padding, still well mixed.
_BATCHES_PER_POOL = 16


class LanguageModelConfiguration(Section):
    """Size and training of the built-in language model."""

    num_quarrels: int = Field(
        default=13_000, ge=0, description="Short, mostly provoked dialogues, read first."
    )
    num_dialogues: Count = Field(default=5_000, description="Natural dialogues, read after those.")
    vocab_size: int = Field(default=1024, ge=258, description="256 bytes, 2 marks, then merges.")
    hidden_size: Count = Field(default=128, description="Of a position; a multiple of 2 num_heads.")
    num_layers: Count = Field(default=3, description="Blocks of attention and MLP.")
    num_heads: Count = Field(default=4, description="Of attention.")
    intermediate_size: Count = Field(default=384, description="Of the MLP.")
    context_tokens: Count = Field(default=256, description="Longer dialogues are cut at the end.")
    batch_size: Count = Field(default=8, description="Dialogues of one optimiser update.")
    lr: Positive = Field(default=3e-3, description="Peak of the cosine schedule.")
    warmup_fraction: Probability = Field(default=0.05, description="Of all updates.")
    weight_decay: float = Field(default=0.01, ge=0.0, description="AdamW's.")
    max_grad_norm: Positive = Field(default=1.0, description="Longer gradients are clipped.")


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 1024) -> "PreTrainedTokenizerFast":
    """A lossless byte-level BPE tokenizer; any text decodes to itself.

    Args:
        texts: What the merges are learned from.
        vocab_size: An upper bound: few texts have few merges.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def train_language_model(
    dialogues: Sequence[Sequence[str]],
    tokenizer: "PreTrainedTokenizerFast",
    config: LanguageModelConfiguration,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> "LlamaForCausalLM":
    """A model that has read every dialogue once, in evaluation mode on the CPU.

    The same arguments give the same weights on the same machine and number of threads, which the
    caller sets. The global random state is left as it was.

    Args:
        dialogues: Utterances in turn.
        tokenizer: From ``train_tokenizer``.
        config: Size and training.
        seed: Of the initial weights and the order of the dialogues.
        progress: Called with the updates done and their total.

    Raises:
        DataError: There is no dialogue.
    """
    import torch
    from torch.nn.utils import clip_grad_norm_
    from transformers import get_cosine_schedule_with_warmup

    if not dialogues:
        msg = "the built-in language model must read at least one dialogue, got 0; make some first"
        raise DataError(msg)
    documents = _documents(dialogues, tokenizer, config.context_tokens)
    batches = _batches(documents, config.batch_size, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _new_model(tokenizer, config)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.lr,
        betas=(0.9, 0.98),
        weight_decay=config.weight_decay,
        fused=True,
    )
    schedule = get_cosine_schedule_with_warmup(
        optimizer, round(config.warmup_fraction * len(batches)), len(batches)
    )
    for step, batch in enumerate(batches, start=1):
        input_ids, labels = _padded(batch, tokenizer.pad_token_id)
        # Padding stands on the right, where causal attention never looks: no mask is needed.
        model(input_ids=input_ids, labels=labels, use_cache=False).loss.backward()
        clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if progress is not None:
            progress(step, len(batches))
    return model.eval()


def make_language_model(
    config: LanguageModelConfiguration,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple["LlamaForCausalLM", "PreTrainedTokenizerFast"]:
    """The built-in model and its tokenizer, from nothing but the configuration and the seed.

    Args:
        config: Size and training.
        seed: Of the dialogues, the initial weights and the order.
        progress: Called with the updates done and their total.
    """
    from tasks.builtin.dialogue import make_dialogues

    # What angers whom is a small part of the loss in natural dialogues. Read at first where it
    # matters in every line, it is learned; the natural dialogues then make provocations rare.
    count = config.num_quarrels
    quarrels = make_dialogues(count, seed=seed, provoking=0.75, sore=0.5, lengths=(3,))
    dialogues = quarrels + make_dialogues(config.num_dialogues, seed=seed)
    texts = (utterance for dialogue in dialogues for utterance in dialogue)
    tokenizer = train_tokenizer(texts, vocab_size=config.vocab_size)
    model = train_language_model(dialogues, tokenizer, config, seed=seed, progress=progress)
    return model, tokenizer


def save_language_model(
    model: "LlamaForCausalLM", tokenizer: "PreTrainedTokenizerFast", folder: Path
) -> None:
    """Leaves ``folder`` holding a Hugging Face checkpoint, whole or as it was before.

    Args:
        model: Written as safetensors.
        tokenizer: Written beside it.
        folder: Replaced if it exists.
    """
    with draft_folder_of(folder) as draft:
        model.save_pretrained(draft, safe_serialization=True)
        tokenizer.save_pretrained(draft)


def _documents(
    dialogues: Sequence[Sequence[str]], tokenizer: "PreTrainedTokenizerFast", longest: int
) -> list[list[int]]:
    """The token ids of each dialogue, every utterance closed by the end mark."""
    texts = ["".join(utterance + END for utterance in dialogue) for dialogue in dialogues]
    return [ids[:longest] for ids in tokenizer(texts)["input_ids"]]


def _batches(documents: list[list[int]], batch_size: int, seed: int) -> list[list[list[int]]]:
    """Every document once, in batches of similar length, shuffled nearby."""
    rng = random.Random(f"batches {seed}")
    pool = _BATCHES_PER_POOL * batch_size
    batches = []
    for start in range(0, len(documents), pool):
        mixed = sorted(documents[start : start + pool], key=len)
        some = [mixed[at : at + batch_size] for at in range(0, len(mixed), batch_size)]
        batches += rng.sample(some, len(some))
    return batches


def _padded(batch: list[list[int]], pad: int) -> tuple["Tensor", "Tensor"]:
    """Input ids and labels of a batch, padded on the right."""
    import torch

    width = max(map(len, batch))
    input_ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), _IGNORED)
    for row, ids in enumerate(batch):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(ids)] = torch.tensor(ids)
    return input_ids, labels


def _new_model(
    tokenizer: "PreTrainedTokenizerFast", config: LanguageModelConfiguration
) -> "LlamaForCausalLM":
    """An untrained model whose weights come from torch's current random state."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    if config.hidden_size % (2 * config.num_heads):
        msg = (
            f"hidden_size must be a multiple of twice num_heads = {config.num_heads}, got "
            f"{config.hidden_size}; see params.yaml"
        )
        raise ConfigurationError(msg)
    marks = {
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        max_position_embeddings=config.context_tokens,
        tie_word_embeddings=True,
        **marks,
    )
    model = LlamaForCausalLM(shape)
    model.generation_config = GenerationConfig(do_sample=True, **marks)
    return model
