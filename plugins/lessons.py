"""Example: supervised training on probes that people wrote, without any rollouts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from astra_core.config import Section
from astra_core.conversation import Conversation
from astra_core.errors import DataError
from astra_core.rollout import Graph, Node, Probe, Prompt, Replies
from astra_core.system import System
from astra_core.training.harness import Experience, Harness
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.policy_batch import PolicyStep


class LessonsTrainer(Trainer):
    """Learns the written probes; one experience is one pass over them.

    For ``sft``, ``expert_iteration`` and every algorithm that learns from ``PolicyStep``.
    """

    class Options(Section):
        """Where the lessons are."""

        path: Path = Field(description='JSON lines such as {"prompt": "so", "probe": "why"}.')

    options: Options

    def __init__(self, *arguments: Any, **parts: Any) -> None:
        super().__init__(*arguments, **parts)
        steps = read_lessons(self.options.path, self.sampler.system)
        self.harness = Lessons(self.harness, steps)


class Lessons(Harness):
    """Returns the same steps as every experience, in a different order each time."""

    def __init__(self, harness: Harness, steps: Sequence[PolicyStep]) -> None:
        super().__init__(harness.sampler, harness.algorithm, num_episodes=1)
        self._steps = tuple(steps)

    def collect(self, iteration: int, graphs: Sequence[Graph] | None) -> Experience:
        """All lessons; existing rollouts are ignored.

        The limit on a step's move is measured from how likely the attacker finds each lesson now.
        """
        del graphs
        nodes = [step.node for step in self._steps]
        known = self.sampler.system.attacker.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
        steps = tuple(
            replace(step, node=replace(node, probe=replace(node.probe, logprobs=own)))
            for step, node, own in zip(self._steps, nodes, known, strict=True)
        )
        return Experience(iteration, (), steps, {"rollout/num_steps": len(steps)}, 0.0)


def read_lessons(path: Path, system: System) -> list[PolicyStep]:
    """The lessons of a file as steps of weight 1, as the system's attacker reads and says them.

    Raises:
        DataError: The file is missing or a line is not a lesson.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [PolicyStep(_turn(line["prompt"], line["probe"], system), 1.0) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} must hold lines with prompt and probe, got {type(error).__name__}: {error}"
        raise DataError(msg) from error


def _turn(prompt: str, probe: str, system: System) -> Node:
    player = system.player(0)
    ids = player.format.written_ids(probe)
    limit = system.context_limit(player.model, len(ids))
    (context,) = player.contexts([Conversation(Prompt.of(prompt))], limit)
    unsampled = (0.0,) * len(ids)
    said = Probe(text=probe, token_ids=ids, logprobs=unsampled, mask=(True,) * len(ids))
    return Node((0,), context, said, Replies((), ()))
