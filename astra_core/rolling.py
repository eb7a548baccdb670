"""One shard of a rollout: what it is, a worker's work on it, and the result."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from astra_core.config import Choice
from astra_core.executor import Work
from astra_core.files import record_digest
from astra_core.registry import build
from astra_core.rollout import Graph, Prompt


@dataclass(frozen=True, slots=True)
class Rolling:
    """One shard of a rollout.

    Attributes:
        account: The account under which a remote target records its calls.
        grown: Arguments of ``TreeSampler.grow``; None calls ``roll_out``.
        state: The sampler's state as safetensors; empty for none.
    """

    prompts: tuple[Prompt, ...]
    iteration: int
    account: str = ""
    grown: Mapping[str, Any] | None = None
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Rolled:
    """The result: the graphs, and the seconds spent waiting for the scorer."""

    graphs: list[Graph]
    score_s: float


@dataclass(frozen=True)
class RollingWork(Work):
    """Work that rolls out by a worker's own sampler, on a System that it loads once.

    Attributes:
        load: Loads the System; it can be pickled.
        reward: Its class and options. It only completes the sampler: the caller assigns rewards.
    """

    load: Callable[[], Any]
    system_name: str
    sampler: Choice
    reward: Choice
    prompts: tuple[Prompt, ...]
    seed: int

    @cached_property
    def key(self) -> str:
        """A digest of everything that defines the sampler."""
        parts = [self.sampler.model_dump(mode="json"), self.reward.model_dump(mode="json")]
        return record_digest([self.holder, *parts, [p.prompt_id for p in self.prompts], self.seed])

    @property
    def holder(self) -> str:
        """The System, whose attacker learns."""
        return self.system_name

    def prepare(self, kept: dict[str, Any]) -> Any:
        """The sampler, on the System of this worker."""
        if self.holder not in kept:
            kept[self.holder] = self.load()
        parts = {"system": kept[self.holder], "prompts": self.prompts, "seed": self.seed}
        return build("sampler", self.sampler, reward=build("reward", self.reward), **parts)

    def renew(self, prepared: Any, data: bytes) -> None:
        """Loads the weights that training has changed into the attackers."""
        from safetensors.torch import load

        own: dict[str, dict[str, Tensor]] = {}
        for name, tensor in load(data).items():
            agent, _, rest = name.partition("/")
            own.setdefault(agent, {})[rest] = tensor
        models = prepared.system.learners()
        for agent, state in own.items():
            missing = models[agent].model.load_state_dict(state, strict=False).unexpected_keys
            if missing:
                msg = f"a worker must know every weight that it is sent, got {missing[0]}"
                raise KeyError(msg)

    def do(self, prepared: Any, shard: Rolling) -> Rolled:
        """The graphs of a shard."""
        return roll_shard(prepared, shard)


class HereWork(Work):
    """Work that rolls out by the sampler of this process."""

    key = "here"

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def prepare(self, kept: dict[str, Any]) -> Any:
        """The sampler."""
        del kept
        return self._sampler

    def do(self, prepared: Any, shard: Rolling) -> Rolled:
        """The graphs of a shard."""
        return roll_shard(prepared, shard)


def roll_shard(sampler: Any, shard: Rolling) -> Rolled:
    """A sampler's result for a shard; failures are checked over all shards together."""
    if shard.state:
        from safetensors.torch import load

        sampler.load_state(load(shard.state))
    before, target = sampler.score_s, sampler.system.target
    scope = target.account_for(shard.account) if shard.account else nullcontext()
    with sampler.in_parts(), scope:
        graphs = _grow(sampler, shard)
    return Rolled(graphs, sampler.score_s - before)


def _grow(sampler: Any, shard: Rolling) -> list[Graph]:
    if shard.grown is None:
        return list(sampler.roll_out(shard.prompts, iteration=shard.iteration))
    with sampler.system.target.evaluating():
        return list(sampler.grow(shard.prompts, iteration=shard.iteration, **shard.grown))
