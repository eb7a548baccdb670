"""Examples of a training file as rollouts, so that our Trainer and its algorithms learn from them.

An example to imitate is a turn with the reward 1; a preference is two turns after one context,
the preferred one with the reward 1 and the other with 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from astra_core.models.language_model import LanguageModel
from astra_core.reward import Reward
from astra_core.rollout import Context, Graph, Node, Probe, Prompt, Replies
from astra_core.sampler import Sampler
from astra_core.settings.sections import Section
from astra_core.system import System
from tasks.serving.fine_tuning.lines import FileError, TrainingExample
from tasks.serving.talking import add_template_ends, answer_ids, heard


class KeptReward(Reward):
    """A reward that keeps the examples' own rewards."""

    def assign(self, graphs: Sequence[Graph]) -> list[Graph]:
        """The graphs unchanged."""
        return list(graphs)


Turns = tuple[tuple[int, ...], list[tuple[int, ...]]]
"""A context and the answers after it, as ids."""


class GivenSampler(Sampler):
    """A sampler that gives turns instead of rolling out.

    Args:
        turns: Each reads one context with its answers, the better one first.
    """

    gives: ClassVar[frozenset[Literal["siblings", "reference", "roles"]]] = frozenset(
        {"siblings", "reference"}
    )

    def __init__(
        self, system: System, turns: Sequence[Callable[[], Turns]], *, seed: int, num_passes: int
    ) -> None:
        self._turns = {f"example {place}": own for place, own in enumerate(turns)}
        self._num_passes = num_passes
        own = (Prompt(name, name) for name in self._turns)
        reward = KeptReward(Section())
        options = self.Options()
        super().__init__(options, system=system, prompts=tuple(own), reward=reward, seed=seed)
        # What cannot be read is refused before the first update.
        self._has_siblings = min([len(read()[1]) for read in turns]) > 1

    @property
    def has_siblings(self) -> bool:
        """Whether the examples are preferences: two answers after each context."""
        return self._has_siblings

    def episodes(self, iteration: int, count: int) -> tuple[Prompt, ...]:
        """The examples of one update; the last update has the rest of the last pass."""
        left = self._num_passes * len(self.prompts) - iteration * count
        return super().episodes(iteration, count)[: max(left, 1)]

    def roll_out(self, prompts: Sequence[Prompt], *, iteration: int) -> list[Graph]:
        """One graph per example."""
        rows = [self._turns[prompt.prompt_id]() for prompt in prompts]
        flat = [(context, answer) for context, answers in rows for answer in answers]
        contexts, answers = [own[0] for own in flat], [own[1] for own in flat]
        system = self.system
        limit = system.config.tokens_per_batch
        now, before = (
            iter(model.continuation_logprobs(contexts, answers, tokens_per_batch=limit))
            for model in (system.attacker, system.reference)
        )
        return [
            Graph(
                prompt,
                iteration,
                tuple(
                    _node(place, context, answer, logprobs=(next(now), next(before)))
                    for place, answer in enumerate(own)
                ),
            )
            for prompt, (context, own) in zip(prompts, rows, strict=True)
        ]


class ExampleSampler(GivenSampler):
    """Gives the examples of a file.

    Raises FileError if an answer is longer than what the model can read.
    """

    def __init__(
        self, system: System, examples: Sequence[TrainingExample], *, seed: int, num_passes: int
    ) -> None:
        add_template_ends(system.attacker)
        turns = [partial(_read, system.attacker, example) for example in examples]
        super().__init__(system, turns, seed=seed, num_passes=num_passes)


def _read(model: LanguageModel, example: TrainingExample) -> Turns:
    """The context and the answers after it; the oldest of a long context is cut."""
    both = [example.answer] + ([example.worse] if example.worse else [])
    answers = [answer_ids(model, example.context, own) for own in both]
    room = model.max_positions - max(map(len, answers))
    if room < 1:
        msg = (
            f"line {example.line} of the training file: the answer must be shorter than "
            f"{model.max_positions} tokens, got {max(map(len, answers))}"
        )
        raise FileError(msg)
    return heard(model, example.context)[-room:], answers


def _node(place: int, context: tuple[int, ...], ids: tuple[int, ...], *, logprobs: Any) -> Node:
    now, before = logprobs
    probe = Probe("", ids, tuple(now), (True,) * len(ids), tuple(before))
    return Node((place,), Context(context), probe, Replies((), ()), reward=1.0 - place)
