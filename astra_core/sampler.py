"""A sampler rolls a System out into graphs."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from astra_core.config import Section
from astra_core.errors import DataError, RolloutError
from astra_core.extensions.calls import describe, plugin_call, refuse
from astra_core.extensions.plugin_class import Plugin
from astra_core.reward import Reward, require_graphs
from astra_core.rollout import Graph, Prompt, prompts_of, runs_of
from astra_core.seeding import derive_key, generator
from astra_core.system import System


@dataclass(frozen=True, slots=True)
class Losses:
    """What rollouts have lost: turns that failed, and replies that the judge could not judge.

    Attributes:
        failure: Why the first turn failed; empty if none did.
        unjudged: Why the first reply has no score; empty if all have one.
    """

    num_turns: int = 0
    num_failed: int = 0
    num_replies: int = 0
    num_unjudged: int = 0
    failure: str = ""
    unjudged: str = ""

    def __add__(self, later: Self) -> Self:
        pairs = list(zip(astuple(self), astuple(later), strict=True))
        return type(self)(*(own + new for own, new in pairs[:4]), *(a or b for a, b in pairs[4:]))


class Sampler(Plugin):
    """Grows one graph per prompt, breadth first, all prompts of a level in one batched call."""

    gives: ClassVar[frozenset[Literal["siblings", "reference", "roles"]]] = frozenset(
        {"siblings", "reference"}
    )
    """What its turns provide: several probes after each context, if its options allow that, and
    log-probabilities under the reference, which algorithms need (``astra_core.algorithm.Need``);
    ``roles`` if ``System.player`` says who plays each turn.
    """

    _is_whole = True
    runs_per_prompt: int = 1
    """Runs of each prompt in an experience; ``roll_out`` is given each run as a prompt."""

    def __init__(
        self,
        options: Section | None = None,
        *,
        system: System,
        prompts: Sequence[Prompt | str],
        reward: Reward,
        seed: int,
        max_failed_fraction: float = 0.05,
    ) -> None:
        super().__init__(options)
        self.system = system
        self.prompts = prompts_of(prompts)
        self.reward = reward
        self.seed = seed
        self.max_failed_fraction = max_failed_fraction
        # Seconds of scoring so far, which the Trainer reports apart from the rest of a rollout.
        self.score_s = 0.0
        with plugin_call("reward", reward, "prepare"):
            reward.prepare(system, self.prompts)

    @property
    @abstractmethod
    def has_siblings(self) -> bool:
        """True where turns are tried more than once, under these options.

        One without is refused to an algorithm that compares siblings.
        """

    @abstractmethod
    def roll_out(self, prompts: Sequence[Prompt], *, iteration: int) -> list[Graph]:
        """One graph per prompt, in order, scored but not yet rewarded.

        Each of several runs of a prompt (``Prompt.run_id``) is a graph with its own random numbers,
        as ``samplers.level.Growth`` gives them.

        Raises RolloutError if more turns failed than may.
        """

    def runs(self, iteration: int, count: int) -> tuple[Prompt, ...]:
        """The ``episodes`` of one iteration, repeated for each of their runs."""
        with plugin_call("sampler", self, "episodes"):
            chosen: Any = self.episodes(iteration, count)
        if not isinstance(chosen, Sequence) or not chosen:
            refuse("sampler", self, "prompts from episodes", got=f"{describe(chosen)} without any")
        if wrong := [own for own in chosen if not isinstance(own, Prompt)]:
            refuse("sampler", self, "Prompts from episodes", got=describe(wrong[0]))
        drawn = self.system.target.draw(chosen, seed=self.seed, iteration=iteration)
        return runs_of(drawn, self.runs_per_prompt)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float] | None:
        """Figures for the log, after an experience was rewarded; may update a memory.

        A figure ``name`` is logged as ``sampler/name``. It is called once per experience; if there
        are several processes, in each of them with all graphs. Most samplers have no memory.
        """
        del graphs
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """What ``remember`` has built, for a checkpoint, such as a curriculum's weights."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # none by default
        """Restores what ``state`` returned."""

    def refuse_many_failures(self, graphs: Sequence[Graph]) -> None:
        """Checks that enough of the turns did not fail; see ``refuse_losses``."""
        self.refuse_losses(losses(graphs))

    def refuse_losses(self, lost: Losses) -> None:
        """Raises unless few enough turns failed, and enough of the replies were judged.

        Raises RolloutError if more failed than ``rollouts.max_failed_fraction`` allows, DataError
        if more are unjudged than ``system.max_unjudged_fraction`` allows.
        """
        if not self._is_whole:
            return
        if lost.num_failed > self.max_failed_fraction * lost.num_turns:
            share = lost.num_failed / lost.num_turns
            msg = (
                f"{lost.num_failed} of {lost.num_turns} turns failed ({share:.0%}), rollouts."
                f"max_failed_fraction allows {self.max_failed_fraction:.0%}; first: {lost.failure}"
            )
            raise RolloutError(msg)
        allowed = self.system.config.max_unjudged_fraction
        if lost.num_unjudged > allowed * lost.num_replies:
            share = lost.num_unjudged / lost.num_replies
            msg = (
                f"system.scorer left {lost.num_unjudged} of {lost.num_replies} replies unjudged "
                f"({share:.0%}), system.max_unjudged_fraction allows {allowed:.0%}; "
                f"first: {lost.unjudged}"
            )
            raise DataError(msg)

    @contextmanager
    def in_parts(self) -> Iterator[None]:
        """Within it nothing is refused: what is lost is counted over all parts together."""
        self._is_whole = False
        try:
            yield
        finally:
            self._is_whole = True

    def episodes(self, iteration: int, count: int) -> tuple[Prompt, ...]:
        """The prompts of one iteration: consecutive slices of one permutation per pass.

        It depends only on the iteration, so the position in the data needs no state, and every
        prompt comes once before any comes twice. A curriculum overrides this, and keeps what it
        learns about prompts by ``remember`` and ``state``.
        """
        total = len(self.prompts)
        if not total:
            msg = "training must have at least one prompt, got 0; see data/valid/train.parquet"
            raise DataError(msg)
        chosen = []
        for position in range(iteration * count, (iteration + 1) * count):
            number, offset = divmod(position, total)
            chosen.append(self.prompts[self._permutation(number)[offset]])
        return tuple(chosen)

    def _permutation(self, number: int) -> list[int]:
        order = generator(derive_key(self.seed, "prompt order", number))
        return [int(index) for index in order.permutation(len(self.prompts))]


def rolled_out(sampler: Sampler, prompts: Sequence[Prompt], *, iteration: int) -> list[Graph]:
    """The rollouts of the sampler, or of the System's crew: one graph per prompt, in order.

    Raises PluginError if it failed, or gave something else; LostProcessError if too many workers
    died.
    """
    crew = sampler.system.crew
    with plugin_call("sampler", sampler, "roll_out"):
        if crew is None or crew.is_plain:
            graphs = sampler.roll_out(prompts, iteration=iteration)
        else:
            graphs = crew.roll_out(sampler, prompts, iteration=iteration)
            sampler.refuse_many_failures(graphs)
    return check_graphs(sampler, prompts, graphs)


def check_graphs(
    sampler: Sampler, prompts: Sequence[Prompt], graphs: Sequence[Graph]
) -> list[Graph]:
    """The graphs, if they are one per prompt, in order, each with a turn."""
    require_graphs("sampler", sampler, graphs, count=len(prompts))
    for graph, prompt in zip(graphs, prompts, strict=True):
        if graph.prompt != prompt or not graph.children:
            got = "no turn" if graph.prompt == prompt else "another prompt"
            refuse("sampler", sampler, "one graph with a turn per prompt, in order", got=got)
    return list(graphs)


def rolled_out_in_pieces(
    sampler: Sampler, prompts: Sequence[Prompt], *, iteration: int, at_once: int
) -> Iterator[list[Graph]]:
    """The graphs of ``rolled_out``, some prompts at a time; failures are counted over all.

    ``at_once``: prompts in a piece. A multiple of ``machine.prompts_per_shard`` gives the same
    graphs as one piece.

    Raises RolloutError if more turns failed than may, so far; PluginError if the sampler failed, or
    gave something else; LostProcessError if too many workers died.
    """
    lost = Losses()
    for start in range(0, len(prompts), at_once):
        with sampler.in_parts():
            graphs = rolled_out(sampler, prompts[start : start + at_once], iteration=iteration)
        lost += losses(graphs)
        sampler.refuse_losses(lost)
        yield graphs


def losses(graphs: Sequence[Graph]) -> Losses:
    """The turns that failed and the replies without a score, with the first reason of each."""
    nodes = [node for graph in graphs for node in graph.nodes()]
    failed = [node.failure for node in nodes if node.has_failed]
    reasons = [reason for node in nodes for reason in node.response_unjudged if reason]
    return Losses(
        num_turns=len(nodes),
        num_failed=len(failed),
        num_replies=sum(len(node.response_scores) for node in nodes),
        num_unjudged=len(reasons),
        failure=next(iter(failed), ""),
        unjudged=next(iter(reasons), ""),
    )
