"""The subjects of the benchmarks: random models of a real model's shape, trees of a real size.

The weights are random: only the shape affects the time.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from astra_core.config import Choice, GenerationConfiguration, Section, SystemConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from astra_core.rollout import Graph, Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.scorer import Scorer
from astra_core.system import System

SEED = 0
POSITIONS = 1024
"""Of every model, as in GPT-2."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Models and trees of one size.

    Attributes:
        name: For people.
        num_layers: Of every model.
        hidden_size: Of every model.
        num_heads: Of every model.
        vocabulary_size: Of every model.
        prompt_tokens: The separator included.
        new_tokens: Of every probe and reply; never fewer.
        tree_width: Probes after every context.
        tree_depth: Turns of a conversation.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    vocabulary_size: int
    prompt_tokens: int
    new_tokens: int
    tree_width: int = 2
    tree_depth: int = 3

    @property
    def generation(self) -> GenerationConfiguration:
        """Sampling with ASTRA-RL's defaults, without early ends."""
        return GenerationConfiguration(
            max_new_tokens=self.new_tokens, min_new_tokens=self.new_tokens, top_k=50, top_p=0.9
        )

    @property
    def weights_mib(self) -> float:
        """MiB of one model's weights in float32; the head is the embedding."""
        width = self.hidden_size
        embeddings = (self.vocabulary_size + POSITIONS) * width
        layers = self.num_layers * (12 * width + 13) * width
        return (embeddings + layers + 2 * width) * 4 / (1 << 20)


GPT2_SMALL = Shape("gpt2-small", 12, 768, 12, 50257, prompt_tokens=64, new_tokens=32)
SMALL = Shape("small", 2, 64, 4, 1000, prompt_tokens=16, new_tokens=8)
SHAPES = {shape.name: shape for shape in (GPT2_SMALL, SMALL)}


class DigestScorer(Scorer):
    """A scorer that takes no time and never gives two texts equal scores: siblings form pairs."""

    @property
    def version(self) -> str:
        """The version of its scores."""
        return "sha256"

    def score(self, texts: Sequence[str]) -> list[float]:
        """A number in [0, 1) that depends only on the text."""
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        return [int.from_bytes(digest[:6], "big") / (1 << 48) for digest in digests]


def language_model(
    shape: Shape, *, seed: int = SEED, is_trained: bool = False, dropout: float = 0.0
) -> LanguageModel:
    """A random GPT-2 of this shape, and a tokenizer that knows ``w0``, ``w1`` and so on.

    Args:
        shape: Of the model.
        seed: Of its weights.
        is_trained: True for weights that take a gradient.
        dropout: 0 lets a trainer that turns dropout on compute the same loss.
    """
    words = {"</s>": 0, **{f"w{index}": index + 1 for index in range(shape.vocabulary_size - 1)}}
    tokenizer = Tokenizer(models.WordLevel(vocab=words, unk_token="</s>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")  # noqa: S106
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=shape.vocabulary_size,
        n_positions=POSITIONS,
        n_embd=shape.hidden_size,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    model.requires_grad_(is_trained)
    return LanguageModel(model, wrapped)


def system(shape: Shape) -> System:
    """An attacker, and one other model that is target and reference at once."""
    config = SystemConfiguration(
        probe=shape.generation,
        response=shape.generation,
        max_context_tokens=900,
        tokens_per_batch=1 << 15,
    )
    attacker = language_model(shape, is_trained=True)
    target = language_model(shape, seed=SEED + 1)
    return System.of(attacker, target, target, scorer=DigestScorer(Section()), config=config)


def prompts(shape: Shape, count: int) -> list[Prompt]:
    """Different prompts with the shape's number of tokens."""
    length, size = shape.prompt_tokens - 1, shape.vocabulary_size - 1
    return [
        Prompt(
            f"{index:016x}", " ".join(f"w{(7919 * index + 31 * t) % size}" for t in range(length))
        )
        for index in range(count)
    ]


def sampler(shape: Shape, own: System) -> TreeSampler:
    """Grows trees of this shape with one reply per probe."""
    options = {"tree_width": shape.tree_width, "tree_depth": shape.tree_depth, "num_responses": 1}
    built: TreeSampler = build(
        "sampler",
        Choice(name="tree", options=options),
        system=own,
        prompts=prompts(shape, 1),
        reward=build("reward", Choice(name="adversarial")),
        seed=SEED,
    )
    return built


def rewarded_graphs(shape: Shape, own: System, count: int) -> list[Graph]:
    """Trees with rewards, each from its own prompt."""
    grown = sampler(shape, own)
    return grown.reward.assign(grown.roll_out(prompts(shape, count), iteration=0))
