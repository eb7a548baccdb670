"""Lines of a training file from selected steps: answers to imitate, or preferences.

A conversation is a chat in which the attacker is the assistant; the seed prompt opens it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from astra_core.algorithms.pairs import PreferencePair
from astra_core.errors import ConfigurationError, TrainingError
from astra_core.models.language_model import LanguageModel
from astra_core.seeding import derive_key, generator
from astra_parts.algorithms.policy_batch import PolicyStep

Method = Literal["supervised", "dpo"]
Message = dict[str, str]
_METHODS: dict[str, Method] = {"expert_iteration": "supervised", "sft": "supervised", "dpo": "dpo"}


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """A training file."""

    method: Method
    records: tuple[dict[str, Any], ...]

    def content(self) -> bytes:
        """The records as JSON lines."""
        texts = (json.dumps(own, ensure_ascii=False, sort_keys=True) for own in self.records)
        return "".join(f"{text}\n" for text in texts).encode("utf-8", "replace")


def method_of(algorithm: str) -> Method:
    """How a service learns what an algorithm selects.

    Raises ConfigurationError if it selects nothing that can be written as text.
    """
    if algorithm not in _METHODS:
        msg = (
            f"training.algorithm must be one of {sorted(_METHODS)} for trainer 'text', got "
            f"'{algorithm}': a fine-tuning job learns from texts alone"
        )
        raise ConfigurationError(msg)
    return _METHODS[algorithm]


def chat_of(model: LanguageModel, context: Sequence[int]) -> list[Message]:
    """The messages in a context of token ids, of which the last is the user's."""
    texts, said, separator = [], [], model.separator_ids
    for token in context:
        said.append(token)
        if tuple(said[-len(separator) :]) == separator:
            texts.append(model.decode(said[: -len(separator)]))
            said = []
    if said:
        texts.append(model.decode(said))
    roles = ["user" if place % 2 == 0 else "assistant" for place in range(len(texts))][::-1]
    chat = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
    # A context that lost its oldest tokens may begin with an answer, which no chat does.
    return chat[1:] if chat and chat[0]["role"] == "assistant" else chat


def lines_of(
    model: LanguageModel, steps: Sequence[Any], *, method: Method, seed: int, iteration: int
) -> TrainingFile:
    """The lines of the steps that an algorithm selected, checked as a service would check them.

    Raises TrainingError if a step does not fit this method.
    """
    is_dpo = method == "dpo"
    kind: type[Any] = PreferencePair if is_dpo else PolicyStep
    if not all(isinstance(step, kind) for step in steps):
        msg = f"trainer 'text' must have steps for method '{method}', got others"
        raise TrainingError(msg)
    weights = [step.weight if is_dpo else step.advantage for step in steps]
    lines = [
        _preference(model, step) if is_dpo else _supervised_line(model, step) for step in steps
    ]
    counts = _counts(weights, seed=seed, iteration=iteration)
    copies = ([line] * count for line, count in zip(lines, counts, strict=True) if line)
    return TrainingFile(method, tuple(chain.from_iterable(copies)))


def _counts(weights: Sequence[float], *, seed: int, iteration: int) -> list[int]:
    """Each weight as a whole number with the same expectation: a fraction is drawn."""
    draws = generator(derive_key(seed, "text copies", iteration)).random(len(weights))
    return [int(w) + int(u < w - int(w)) for w, u in zip(weights, draws, strict=True)]


def _supervised_line(model: LanguageModel, step: PolicyStep) -> dict[str, Any] | None:
    """The line of a step; None where nothing was said."""
    node = step.node
    if not node.probe_text.strip():
        return None
    answer = {"role": "assistant", "content": node.probe_text}
    before = [
        {**own, "weight": 0} if own["role"] == "assistant" else own
        for own in chat_of(model, node.context_ids)
    ]
    return {"messages": [*before, {**answer, "weight": 1}]}


def _preference(model: LanguageModel, pair: PreferencePair) -> dict[str, Any] | None:
    """The line of a pair; None where nothing was said, or twice the same."""
    texts = pair.chosen.probe_text.strip(), pair.rejected.probe_text.strip()
    if not all(texts) or texts[0] == texts[1]:
        return None
    return {
        "input": {"messages": chat_of(model, pair.chosen.context_ids)},
        "preferred_output": [{"role": "assistant", "content": pair.chosen.probe_text}],
        "non_preferred_output": [{"role": "assistant", "content": pair.rejected.probe_text}],
    }
