"""A value head on the attacker, and the one forward pass that feeds policy, entropy and value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear

from astra_core.engine.logprobs import (
    continuation_states,
    token_logprobs,
    token_logprobs_and_entropies,
)
from astra_core.engine.plan import Plan
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import TokenRows, row_batches


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """The results of one pass for every continuation token.

    Attributes:
        logprobs: Nats; exactly 0 at padding.
        entropies: Of the distribution the token was drawn from, nats; empty unless asked for.
    """

    logprobs: Float[Tensor, "B T"]
    entropies: Float[Tensor, "B t"]
    states: Float[Tensor, "B T H"]
    final_states: Float[Tensor, "B H"]


def token_outputs(
    model: Any, rows: TokenRows, *, with_entropies: bool = False, plan: Plan | None = None
) -> TokenOutputs:
    """What ``token_logprobs`` gives, with the hidden states it comes from."""
    tail = rows.continuation_ids.shape[1]
    if len(rows.input_ids) == 0:
        # transformers cannot reshape an empty batch.
        none, width = torch.zeros(0, tail), model.get_input_embeddings().weight.shape[1]
        return TokenOutputs(none, none, torch.zeros(0, tail, width), torch.zeros(0, width))
    plan = plan or Plan.of(model)
    states = continuation_states(model, rows, plan=plan)
    mask = rows.continuation_mask
    if with_entropies:
        logprobs, entropies = token_logprobs_and_entropies(model, rows, states=states, plan=plan)
    else:
        logprobs = token_logprobs(model, rows, states=states, plan=plan)
        entropies = logprobs.new_zeros(len(logprobs), 0)
    # Row i has its last token in place num_tokens[i].
    ends = mask.sum(dim=1)
    states = states.float()
    final = states[torch.arange(len(states), device=states.device), ends]
    return TokenOutputs(logprobs, entropies, states[:, :-1], final)


class ValueHead:
    """A linear read-out of the attacker's last hidden state: the return to expect, reward units.

    It starts at zero everywhere, so it needs no random numbers and predicts 0 at first.
    """

    def __init__(self, attacker: LanguageModel) -> None:
        width = attacker.model.get_input_embeddings().weight.shape[1]
        self._attacker = attacker
        self._weight = Parameter(torch.zeros(1, width, device=attacker.device))
        self._bias = Parameter(torch.zeros(1, device=attacker.device))

    def __call__(self, states: Float[Tensor, "*batch H"]) -> Float[Tensor, "*batch"]:
        """The value of each state; the gradient reaches the attacker too."""
        # In float32 also under autocast: a return is regressed on, and bf16 keeps three digits.
        with torch.autocast(states.device.type, enabled=False):
            return linear(states.float(), self._weight, self._bias)[..., 0]

    def parameters(self) -> tuple[Parameter, ...]:
        """Weight and bias."""
        return (self._weight, self._bias)

    def state(self) -> Mapping[str, Tensor]:
        """Weight and bias for a checkpoint."""
        return {"value_head/weight": self._weight.detach(), "value_head/bias": self._bias.detach()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores them in place, so that the optimiser's references stay valid."""
        with torch.no_grad():
            for parameter, name in zip(self.parameters(), ("weight", "bias"), strict=True):
                parameter.copy_(state[f"value_head/{name}"])

    @torch.no_grad()
    def values(
        self,
        contexts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        tokens_per_batch: int,
    ) -> list[tuple[float, ...]]:
        """The value before each continuation token and, as the last entry, after all of them."""
        found: list[tuple[float, ...]] = [()] * len(contexts)
        for chunk, rows in row_batches(
            contexts,
            continuations,
            pad_id=0,
            device=self._attacker.device,
            tokens_per_batch=tokens_per_batch,
        ):
            output = token_outputs(self._attacker.model, rows, plan=self._attacker.plan)
            before, after = self(output.states).tolist(), self(output.final_states).tolist()
            for index, own, last in zip(chunk, before, after, strict=True):
                found[index] = (*own[: len(continuations[index])], last)
        return found
