"""Tiny models, systems and hand-made graphs, built in memory and the same for the same seed."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from astra_core.agents import Agent
from astra_core.config import (
    AgentConfiguration,
    Choice,
    GenerationConfiguration,
    SystemConfiguration,
)
from astra_core.errors import ConfigurationError
from astra_core.judge import Judge
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from astra_core.rollout import Context, Failure, Graph, Node, Probe, Prompt, Replies
from astra_core.scorer import Scorer
from astra_core.seeding import derive_seed, torch_seeded
from astra_core.system import System
from astra_core.target import Target

WORDS = (
    *("you", "are", "bad", "worse", "good", "kind", "they", "we", "never", "always", "said"),
    *("why", "what", "no", "yes", "so", "here", "now"),
)
"""The words of a tiny word-level model; its scorer looks for ``bad`` and ``worse``."""

TOLD = "so bad"
"""The instruction of the second of ``tiny_agents``."""

_END = "</s>"
_UNKNOWN = "<unk>"


def tiny_language_model(
    seed: int = 0,
    *,
    kind: Literal["llama", "gpt2"] = "llama",
    vocabulary: Sequence[str] | None = WORDS,
    separator: str | None = None,
    max_positions: int = 128,
    layers: int = 1,
    is_trained: bool = False,
) -> LanguageModel:
    """A random causal LM of a few thousand weights, whose next token depends on its context.

    Args:
        seed: Of the weights; the tokenizer is the same for the same vocabulary.
        vocabulary: Words it knows; None for a byte-level tokenizer that knows every text.
        separator: Text between turns; None is its end-of-sequence token.
        layers: The number of its layers: a second one doubles the time of all that it does.
        is_trained: True for weights that take a gradient.
    """
    tokenizer = _byte_tokenizer() if vocabulary is None else _word_tokenizer(vocabulary)
    # A copy takes half the time that building takes.
    made = _tiny_model(kind, len(tokenizer), max_positions, layers=layers, seed=seed)
    model = copy.deepcopy(made)
    model.requires_grad_(is_trained)
    return LanguageModel(model, tokenizer, separator=separator)


def tiny_system(
    seed: int = 0,
    *,
    kind: Literal["llama", "gpt2"] = "llama",
    layers: int = 1,
    reference_seed: int | None = None,
    target: LanguageModel | Target | None = None,
    scorer: Scorer | Judge | None = None,
    config: SystemConfiguration | None = None,
) -> System:
    """A System of tiny models; the attacker takes gradients, the reference is its frozen copy.

    Args:
        reference_seed: Of the reference's weights, for an attacker that has moved away from it;
            None for equal weights.
        target: None lets the reference answer, as when attacker and target are one model.
        scorer: None counts the phrases ``bad`` and ``worse``.
        config: None for utterances of at most 6 tokens.
    """
    short = GenerationConfiguration(max_new_tokens=6)
    config = config or SystemConfiguration(
        max_context_tokens=64, probe=short, response=short, tokens_per_batch=512
    )
    origin = seed if reference_seed is None else reference_seed
    attacker, reference = (
        tiny_language_model(
            own, kind=kind, layers=layers, separator=config.separator, is_trained=is_trained
        )
        for own, is_trained in ((seed, True), (origin, False))
    )
    choice = Choice(name="phrases", options={"phrases": ["bad", "worse"]})
    judge = scorer or build("scorer", choice)
    return System.of(attacker, target or reference, reference, scorer=judge, config=config)


def tiny_agents(system: System) -> System:
    """The same with two agents: ``first`` plays the first turn, ``second`` the others by ``TOLD``.

    They share the attacker's model.
    """
    told = system.attacker.closed_ids(system.attacker.encode(TOLD))
    agents = (
        Agent("first", system.attacker, system.reference),
        Agent("second", system.attacker, system.reference, told),
    )
    own = {"second": AgentConfiguration(instruction=TOLD)}
    config = system.config.model_copy(update={"roles": ("first", "second"), "agents": own})
    return replace(system, config=config, agents=agents)


def tiny_prompts(count: int = 4) -> tuple[Prompt, ...]:
    """Different prompts in the words of the tiny models."""
    texts = (
        " ".join(
            [
                WORDS[index % len(WORDS)],
                WORDS[(3 * index + 1) % len(WORDS)],
                *["so"] * (index % 3 + 3 * (index // len(WORDS))),
            ]
        )
        for index in range(count)
    )
    return tuple(Prompt(f"{index:016x}", text) for index, text in enumerate(texts))


def tiny_node(reward: float, *children: Node, **changes: Any) -> Node:
    """One turn of a hand-made graph; ``tiny_graph`` gives it its path.

    Args:
        reward: Its reward, and its score as far as that lies in [0, 1].
        changes: Any other attribute or property of ``Node``, such as ``probe_text``, ``score`` or
            ``failure``. ``probe_ids`` sets the length of the token lists.
    """
    ids = changes.pop("probe_ids", (2, 3, 0))
    score = changes.pop("score", min(max(reward, 0.0), 1.0))
    failure = changes.pop("failure", "")
    outcome = Replies(
        texts=changes.pop("response_texts", ("no",)),
        scores=changes.pop("response_scores", (score,)),
        token_ids=changes.pop("response_ids", ((13, 0),)),
        probe_logprobs=changes.pop("target_logprobs", (-2.0,) * len(ids)),
        unjudged=changes.pop("response_unjudged", ()),
        labels=changes.pop("response_labels", ()),
        rationales=changes.pop("response_rationales", ()),
        finish_reasons=changes.pop("response_finish_reasons", ()),
    )
    return Node(
        path=changes.pop("path", ()),
        context=Context(changes.pop("context_ids", (4, 5, 0)), changes.pop("truncated_tokens", 0)),
        probe=_tiny_probe(tuple(ids), changes),
        outcome=Failure(failure) if failure else outcome,
        reward=reward,
        children=children,
    )


def _tiny_probe(ids: tuple[int, ...], changes: dict[str, Any]) -> Probe:
    """The probe of ``tiny_node``, from the remaining changes."""
    probe = Probe(
        text=changes.pop("probe_text", "you are"),
        token_ids=ids,
        logprobs=changes.pop("probe_logprobs", (-1.0,) * len(ids)),
        mask=changes.pop("probe_mask", (True,) * len(ids)),
        reference_logprobs=changes.pop("reference_logprobs", (-1.5,) * len(ids)),
        score=changes.pop("probe_score", 0.0),
        novelty=changes.pop("novelty", 1.0),
    )
    if changes:
        msg = f"tiny_node must get attributes of a node, got {sorted(changes)}; see Node"
        raise ConfigurationError(msg)
    return probe


def tiny_graph(*children: Node, prompt: Prompt | None = None, iteration: int = 0) -> Graph:
    """The graph of these turns, for example ``tiny_graph(tiny_node(0.9), tiny_node(0.1))``.

    ``children``: the first turns; every turn below gets the path of its place.
    """
    return Graph(prompt or tiny_prompts(1)[0], iteration, _place(children, ()))


def _place(nodes: Sequence[Node], path: tuple[int, ...]) -> tuple[Node, ...]:
    return tuple(
        replace(node, path=(*path, index), children=_place(node.children, (*path, index)))
        for index, node in enumerate(nodes)
    )


def _word_tokenizer(vocabulary: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate([_END, _UNKNOWN, *vocabulary])}
    tokenizer = Tokenizer(models.WordLevel(vocab=words, unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_END, unk_token=_UNKNOWN)


def _byte_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [_END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    known = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_END)


@cache
def _tiny_model(
    kind: str, vocabulary_size: int, max_positions: int, *, layers: int, seed: int
) -> Any:
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    # Far wider than a real initialisation: next-token probabilities differ by context, as in a
    # trained model, so that a mistake in positions or masks shows.
    spread = 0.3
    # Ids of the tokenizer, not the architecture's defaults: transformers warns if they differ.
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    shape = {
        "vocab_size": vocabulary_size,
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "max_position_embeddings": max_positions,
        "initializer_range": spread,
    }
    if kind == "gpt2":
        config = GPT2Config(**shape, **ends)
    else:
        config = LlamaConfig(**shape, **ends, intermediate_size=32, tie_word_embeddings=True)
    with torch_seeded(derive_seed(seed, "tiny language model")):
        return AutoModelForCausalLM.from_config(config)
