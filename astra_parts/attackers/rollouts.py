"""Rollouts of attackers that nobody trained, in the shape of a trained one's."""

from collections.abc import Sequence
from dataclasses import dataclass

from astra_core.conversation import Conversation
from astra_core.rollout import Graph, Prompt
from astra_core.samplers.level import Growth, grow_level, opening
from astra_core.system import System
from astra_core.target import Target, Usage
from astra_parts.attackers.prompted import PromptedAttacker
from astra_parts.attackers.scripts import Script
from astra_parts.attackers.templates import TemplateBandit, bandit_turns
from astra_parts.samplers.talks import Talk, chain_turns, hold_talks, talks_of, trees


@dataclass(frozen=True, slots=True)
class Tries:
    """What each attacker may ask of the target.

    Attributes:
        num_rollouts: Of each prompt.
        depth: Turns of a rollout.
        num_responses: Replies to each probe.
        threshold: A score at or above it is a success.
    """

    system: System
    prompts: tuple[Prompt, ...]
    num_rollouts: int
    depth: int
    num_responses: int
    threshold: float
    seed: int

    def plain(self) -> list[Graph]:
        """The prompts as they stand, each time as the first turn of a conversation."""

        def speak(talks: Sequence[Talk]) -> list[str]:
            for talk in talks:
                talk.conversation = Conversation(talk.prompt)
            return [talk.prompt.text for talk in talks]

        turns = hold_talks(self._growth("plain"), self._talks(), speak, depth=self.depth)
        return trees(self.prompts, turns)

    def best_of(self) -> list[Graph]:
        """First turns of the System's attacker; a rollout is the best of ``num_tries`` of them."""
        growth = self._growth("best of", num_responses=1)
        width = self.num_rollouts * self.num_tries
        with self.system.remembering():
            places = [opening(prompt) for prompt in self.prompts]
            nodes = [turn.node for turn in grow_level(growth, places, width).turns]
        starts = range(0, len(nodes), self.num_tries)
        turns = [chain_turns(nodes[at : at + self.num_tries]) for at in starts]
        return trees(self.prompts, turns)

    @property
    def num_tries(self) -> int:
        """Replies of a rollout, which is as many probes with one reply each."""
        return self.depth * self.num_responses

    def bandit(self, templates: Sequence[str]) -> list[Graph]:
        """Templates around the prompts, chosen by what succeeded before."""
        own = TemplateBandit(templates, self.threshold, self.seed)
        turns = bandit_turns(self._growth("templates"), self._talks(), own, depth=self.depth)
        return trees(self.prompts, turns)

    def follow_script(self, script: Script, model: Target) -> tuple[list[Graph], Usage]:
        """A chat model that follows a script, and what it was used for."""
        growth = self._growth(script.name)
        own = PromptedAttacker(script, model, growth, self.depth)
        config = self.system.config
        is_bf16 = config.precision == "bf16"
        with model.evaluating(), model.remembering(config.prefix_cache_mib << 20, is_bf16=is_bf16):
            turns = hold_talks(growth, self._talks(), own, depth=self.depth)
        return trees(self.prompts, turns), own.usage

    def _talks(self) -> list[Talk]:
        return talks_of(self.prompts, self.num_rollouts)

    def _growth(self, purpose: str, *, num_responses: int | None = None) -> Growth:
        return Growth(self.system, self.seed, purpose, 0, num_responses or self.num_responses)
