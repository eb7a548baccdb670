"""The Harness: experience from the sampler, batches for the Trainer."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from torch import Tensor

from astra_core.agents import turn_figures
from astra_core.algorithm import Algorithm, Batch, collate_steps, flatten_experience, loss_of
from astra_core.config import Shuffle, StalenessConfiguration, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import plugin_figures
from astra_core.files import record_digest
from astra_core.metrics.attack import mean_kl_nats
from astra_core.metrics.reply_signal import reply_signal, score_share
from astra_core.reward import reward_graphs
from astra_core.rollout import Graph
from astra_core.sampler import Sampler, rolled_out
from astra_core.seeding import derive_key, generator
from astra_core.training.collection.ahead import Ahead
from astra_core.training.collection.correction import correct
from astra_core.training.distribution.distributed import World


@dataclass(frozen=True, slots=True)
class Experience:
    """The experience of one iteration; iterating gives its batches, for a hand-written loop.

    Attributes:
        steps: The algorithm's flattened steps, in the order of the graphs.
        metrics: Means over the nodes, and the figures of reward, algorithm and sampler.
        rollout_s: Seconds of collecting it, without scoring.
        divided: Its batches of all epochs; None if its harness divides none.
    """

    iteration: int
    graphs: tuple[Graph, ...]
    steps: tuple[Any, ...]
    metrics: dict[str, float]
    rollout_s: float
    score_s: float = 0.0
    divided: Callable[["Experience"], Iterator[Batch]] | None = field(
        default=None, repr=False, compare=False
    )

    def __iter__(self) -> Iterator[Batch]:
        if self.divided is None:
            msg = (
                "an experience must come from Harness.experience to give batches, got one made by "
                "hand; use harness.batches(experience, epoch=0, batch_size=...)"
            )
            raise ConfigurationError(msg)
        return self.divided(self)

    def digest(self) -> str:
        """A digest of the rollouts."""
        nodes = [node for graph in self.graphs for node in graph.nodes()]
        return record_digest([[node.probe_ids, node.response_ids] for node in nodes])


class Watcher(Protocol):
    """Counts what a hand-written loop does with a harness: a Trainer's ``HandLoop``."""

    def begin(self) -> tuple[int, Sequence[Graph] | None]:
        """The next iteration, and its rollouts where they exist."""

    def note_experience(self, experience: Experience) -> None:
        """Notes the experience that is learned from now."""

    def note_batches(self, experience: Experience) -> None:
        """Notes that its batches are taken one by one, to the last."""

    def note_division(self, experience: Experience) -> None:
        """Notes the experience whose batches the harness gives."""

    def note_end(self, experience: Experience) -> None:
        """Notes that all its batches were taken."""

    def step(self, algorithm: Algorithm, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The mean loss and figures of a batch."""


class Harness:
    """Collects experience and divides it into micro-batches.

    Args:
        num_episodes: Prompts of one experience, each of which may be run several times.
        shuffle: What is shuffled in each epoch: whole trees, whose steps are read with
            their common context, or single steps.
        batch_size: Steps of a batch when an experience is iterated over.
        num_epochs: How often an iteration over an experience gives its steps.
        world: The processes that share the rollouts; None for this one alone.
        staleness: How far ahead experience is collected, by an older attacker; None for not at all.

    Attributes:
        max_update_share: Of an experience, for one update.
        ahead: Experiences collected ahead; None if the present attacker samples every one.
        watcher: The watcher of the Trainer that owns this harness; without one it counts its
            iterations itself.
    """

    def __init__(
        self,
        sampler: Sampler,
        algorithm: Algorithm,
        *,
        num_episodes: int,
        shuffle: Shuffle = "trees",
        batch_size: int = 16,
        num_epochs: int = 1,
        world: World | None = None,
        staleness: StalenessConfiguration | None = None,
    ) -> None:
        self.sampler = sampler
        self.algorithm = algorithm
        self._num_episodes = num_episodes
        self._shuffle = shuffle
        self._batch_size = batch_size
        self._num_epochs = num_epochs
        self.max_update_share = 1.0
        self._next_iteration = 0
        self.watcher: Watcher | None = None
        self._world = world or World()
        self._staleness = staleness or StalenessConfiguration()
        self.ahead = self._ahead()

    @classmethod
    def of(
        cls, config: TrainingConfiguration, sampler: Sampler, algorithm: Algorithm, *, world: World
    ) -> Self:
        """The harness of a run's configuration."""
        own = cls(
            sampler,
            algorithm,
            num_episodes=config.num_episodes_per_experience,
            shuffle=config.shuffle,
            batch_size=config.batch_size,
            num_epochs=config.epochs_per_experience,
            world=world,
            staleness=config.staleness,
        )
        own.max_update_share = config.max_update_share
        return own

    def _ahead(self) -> Ahead | None:
        config, algorithm = self._staleness, self.algorithm
        if config.correction != "none" and not algorithm.weighs_probes:
            msg = (
                f"training.staleness.correction must be 'none' for {type(algorithm).__name__}, "
                f"whose loss weighs no probes, got '{config.correction}'; or choose another "
                "training.algorithm, such as grpo"
            )
            raise ConfigurationError(msg)
        if not config.max_versions:
            return None
        return Ahead(
            self.sampler,
            max_versions=config.max_versions,
            num_episodes=self._num_episodes,
            world=self._world,
        )

    def settle(self) -> None:
        """Waits for what is collected ahead, before a checkpoint; a task of all processes."""
        if self.ahead is not None:
            self.ahead.settle()

    def experience(
        self, iteration: int | None = None, *, graphs: Sequence[Graph] | None = None
    ) -> Experience:
        """The experience of one iteration.

        ``iteration``: determines the prompts and the random numbers; None takes the next, and the
        Trainer that owns this harness then counts its training steps by itself.
        """
        watcher = self.watcher
        if iteration is None:
            iteration, known = watcher.begin() if watcher else (self._next_iteration, None)
            self._next_iteration, graphs = iteration + 1, graphs or known
        found = self.collect(iteration, graphs)
        if watcher is not None:
            watcher.note_experience(found)
        return found

    def step(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The mean loss of a batch and figures on it, for a loop that is written by hand.

        Where ``n`` batches make one update, each of their losses is divided by ``n``.

        Raises PluginError if the algorithm failed, or gave no loss.
        """
        if self.watcher is not None:
            return self.watcher.step(self.algorithm, batch)
        loss, logs = loss_of(self.algorithm, batch)
        return loss / (batch.weight or 1.0), logs

    def collect(self, iteration: int, graphs: Sequence[Graph] | None) -> Experience:
        """The experience of this iteration; overridden where it comes from elsewhere."""
        start, scored = time.perf_counter(), self.sampler.score_s
        version = iteration
        if self.ahead is not None:
            self.ahead.begin(iteration, is_known=graphs is not None)
            if graphs is None:
                graphs, version = self.ahead.take(iteration)
        if graphs is None:
            graphs = self._roll_out(iteration)
        # A list, because known rollouts may be in a file that each use reads again.
        rewarded = reward_graphs(self.sampler.reward, list(graphs))
        figures = figures_of_part("reward", self.sampler.reward, rewarded)
        learned, stale = self._correct(rewarded, age=iteration - version)
        steps = flatten_experience(self.algorithm, learned)
        figures |= figures_of_part("algorithm", self.algorithm, learned)
        figures |= figures_of_part("sampler", self.sampler, rewarded)
        system = self.sampler.system
        of_agents = turn_figures(system.agents, system.player, rewarded)
        score_s = self.sampler.score_s - scored
        return Experience(
            iteration,
            tuple(learned),
            steps,
            {
                **experience_figures(rewarded, len(steps)),
                **{f"rollout/{name}": value for name, value in of_agents.items()},
                **figures,
                **stale,
            },
            time.perf_counter() - start - score_s,
            score_s,
            self._divide,
        )

    def _correct(self, graphs: list[Graph], *, age: int) -> tuple[list[Graph], dict[str, float]]:
        """The graphs in the form that is learned from, and figures on their age."""
        figures: dict[str, float] = {}
        if self.ahead is not None:
            figures = {"staleness": float(age), "num_dropped": float(self.ahead.num_dropped)}
        # Another engine than the one that learns rounds in another way, whatever the age.
        is_other = age or self.sampler.system.attacker.elsewhere is not None
        if is_other and self._staleness.correction != "none":
            graphs, found = correct(graphs, self.sampler.system, self._staleness)
            figures |= found
        return graphs, {f"rollout/{name}": value for name, value in figures.items()}

    def _roll_out(self, iteration: int) -> list[Graph]:
        """New rollouts; each of several processes makes its share and receives all of them."""
        sampler, world = self.sampler, self._world
        prompts = sampler.runs(iteration, self._num_episodes)
        if world.size == 1:
            return rolled_out(sampler, prompts, iteration=iteration)
        # The failure limit is a share of all rollouts, not of one process's.
        own = world.share(prompts)
        with sampler.in_parts():
            graphs = rolled_out(sampler, own, iteration=iteration) if own else []
        every = world.whole(graphs)
        sampler.refuse_many_failures(every)
        return every

    def _divide(self, experience: Experience) -> Iterator[Batch]:
        """Every batch of every epoch; a watcher is notified of the first and of the end."""
        if self.watcher is not None:
            self.watcher.note_batches(experience)
        size = self.update_size(experience, most=self._batch_size)
        for epoch in range(self._num_epochs):
            yield from self.batches(experience, epoch=epoch, batch_size=size)
        if self.watcher is not None:
            self.watcher.note_end(experience)

    def update_size(self, experience: Experience, *, most: int) -> int:
        """Steps that one update learns from: fewer where the experience has few."""
        return min(most, max(1, math.ceil(len(experience.steps) * self.max_update_share)))

    def batches(
        self, experience: Experience, *, epoch: int, batch_size: int, update_size: int | None = None
    ) -> Iterator[Batch]:
        """The steps as micro-batches, reordered in each epoch; none is dropped.

        ``update_size``: steps of one update, whose micro-batches hold no step of the next; None
        for one micro-batch each.
        """
        if self.watcher is not None:
            self.watcher.note_division(experience)
        key = derive_key(self.sampler.seed, "mini-batches", experience.iteration, epoch)
        groups = _trees(experience) if self._shuffle == "trees" else [[x] for x in experience.steps]
        mixed = generator(key).permutation(len(groups))
        order = [step for place in mixed for step in groups[place]]
        size = update_size or batch_size
        for start in range(0, len(order), size):
            update = order[start : start + size]
            for at in range(0, len(update), batch_size):
                yield collate_steps(self.algorithm, update[at : at + batch_size])


def _trees(experience: Experience) -> list[list[Any]]:
    """The steps grouped by tree, in the order of their first step."""
    tree = {id(node): at for at, graph in enumerate(experience.graphs) for node in graph.nodes()}
    groups: dict[Any, list[Any]] = {}
    for at, step in enumerate(experience.steps):
        # A custom algorithm's step need not name a turn; then it is shuffled by itself.
        known = tree.get(id(getattr(step, "node", step)))
        groups.setdefault((at, "alone") if known is None else known, []).append(step)
    return list(groups.values())


def figures_of_part(kind: str, plugin: Any, graphs: Sequence[Graph]) -> dict[str, float]:
    """The figures of a part about an experience, under the part's area of the log."""
    area = "train" if kind == "algorithm" else kind
    figures = plugin_figures(kind, plugin, graphs)
    return {f"{area}/{name}": value for name, value in figures.items()}


def experience_figures(graphs: Sequence[Graph], num_steps: int) -> dict[str, float]:
    """Means over the turns that were judged, and counts."""
    nodes = [node for graph in graphs for node in graph.nodes()]
    alive = [node for node in nodes if node.is_judged]
    count = max(len(alive), 1)
    known = {"kl_nats": mean_kl_nats(alive), "score_share": score_share(graphs)}
    known["reply_signal"] = reply_signal(graphs)
    return {
        "rollout/reward": sum(node.reward for node in alive) / count,
        "rollout/score": sum(node.score for node in alive) / count,
        "rollout/probe_score": sum(node.probe_score for node in alive) / count,
        "rollout/novelty": sum(node.novelty for node in alive) / count,
        "rollout/target_nll": sum(node.target_nll for node in alive) / count,
        "rollout/probe_tokens": sum(len(node.probe_ids) for node in alive) / count,
        "rollout/num_nodes": float(len(nodes)),
        "rollout/num_replies": float(sum(len(node.response_scores) for node in nodes)),
        "rollout/num_failed": float(sum(node.has_failed for node in nodes)),
        "rollout/num_unjudged": float(sum(node.is_unjudged for node in nodes)),
        "rollout/num_steps": float(num_steps),
        **{
            f"rollout/{name}": value
            for name, value in known.items()
            if value is not None and not math.isnan(value)
        },
    }
