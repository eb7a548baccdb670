"""Rolls a System out: the shards of an experience or evaluation are given to an executor.

A shard is ``machine.prompts_per_shard`` prompts in their order, for any worker: with the same
number the graphs are bitwise the same for every executor and any number of workers. Another number
makes other batches, which round differently. Workers load the System from its folders once and
get what training has changed since, once per version.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from astra_core.config import Choice
from astra_core.executor import Executor, Weights
from astra_core.files import record_digest
from astra_core.models.lora import merged_state
from astra_core.registry import NoOptions, name_of
from astra_core.rolling import HereWork, Rolled, Rolling, RollingWork
from astra_core.rollout import Graph, Prompt

_names = itertools.count()
_NO_REWARD = Choice(name="adversarial")


@dataclass(frozen=True)
class Crew:
    """The executor of a System, and what its workers need to know.

    Attributes:
        prompts_per_shard: 0 makes one shard of all.
        load: How a worker loads the System; it can be pickled.
    """

    executor: Executor
    prompts_per_shard: int
    load: Callable[[], Any]
    name: str = field(default_factory=lambda: f"system {next(_names)}")
    _base: dict[str, str] = field(default_factory=dict, repr=False)
    _changed: set[str] = field(default_factory=set, repr=False)

    @property
    def is_plain(self) -> bool:
        """True if everything is one shard of this process, so that there is nothing to hand out."""
        return self.executor.is_here and not self.prompts_per_shard

    def begin(self, system: Any) -> None:
        """Notes the weights as they are in the folders, from which workers load them."""
        if not self.executor.is_here:
            self._base.update(_digests(_state(system)))

    def roll_out(
        self,
        sampler: Any,
        prompts: Sequence[Prompt],
        *,
        iteration: int,
        grown: Mapping[str, Any] | None = None,
    ) -> list[Graph]:
        """The graphs of all prompts, in order, of which too many may have failed."""
        roll_out = self.rollout_call(sampler, prompts, iteration=iteration, grown=grown)
        found = roll_out()
        if not self.executor.is_here:
            # In worker time, as if one worker had waited for all of them.
            sampler.score_s += sum(own.score_s for own in found) / self.executor.num_workers
        return [graph for own in found for graph in own.graphs]

    def rollout_call(
        self,
        sampler: Any,
        prompts: Sequence[Prompt],
        *,
        iteration: int,
        grown: Mapping[str, Any] | None = None,
    ) -> Callable[[], list[Rolled]]:
        """The call that rolls out with the present weights and state of the sampler.

        It touches nothing that training changes, and gives one result per shard, in order.
        """
        count = self.prompts_per_shard or max(len(prompts), 1)
        is_here, system = self.executor.is_here, sampler.system
        account = "" if is_here else system.target.account
        state = b"" if is_here else _tensor_bytes(sampler.state())
        shards = tuple(
            Rolling(tuple(prompts[at : at + count]), iteration, account, grown, state)
            for at in range(0, len(prompts), count)
        )
        work = HereWork(sampler) if is_here else self.work(sampler, is_grown=bool(grown))
        weights = None if is_here else self.weights(system)
        title = "evaluation" if grown else "rollouts"
        return partial(self.executor.run, work, shards, weights=weights, title=title)

    def work(self, sampler: Any, *, is_grown: bool = False) -> RollingWork:
        """The sampler as workers build it, from its class and its options.

        ``is_grown``: true if it only grows trees, for which it needs neither reward nor prompts.
        """
        return RollingWork(
            self.load,
            self.name,
            _choice("sampler", sampler),
            _NO_REWARD if is_grown else _choice("reward", sampler.reward),
            () if is_grown else sampler.prompts,
            sampler.seed,
        )

    def weights(self, system: Any) -> Weights | None:
        """The present values of all weights that have ever changed; None if none has."""
        state = _state(system)
        digests = _digests(state)
        # Also a tensor with its first value again: a worker may hold that of a version in between.
        self._changed.update(name for name, own in digests.items() if own != self._base.get(name))
        if not self._changed:
            return None
        sent = {name: state[name] for name in sorted(self._changed)}
        version = record_digest({name: digests[name] for name in sent})
        return Weights(version, _tensor_bytes(sent))


def _choice(kind: str, plugin: Any) -> Choice:
    """The entry of params.yaml that gives this plug-in."""
    options = getattr(plugin, "options", NoOptions())
    return Choice(name=name_of(kind, type(plugin)), options=options.model_dump(mode="json"))


def _state(system: Any) -> dict[str, Tensor]:
    """The weights of all attackers, adapters merged in; those that share memory once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for agent, model in system.learners().items():
        state = merged_state(model.model) or model.model.state_dict()
        for name, tensor in state.items():
            if tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                found[f"{agent}/{name}"] = tensor.detach().cpu().contiguous()
    return found


def _digests(state: Mapping[str, Tensor]) -> dict[str, str]:
    """SHA-256 of the bytes of each tensor."""
    return {
        name: hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().data).hexdigest()
        for name, tensor in state.items()
    }


def _tensor_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The tensors in the format of safetensors; nothing for none."""
    from safetensors.torch import save

    return save({name: tensor.contiguous() for name, tensor in state.items()}) if state else b""
