"""The loop form in which a service learns from parts of an experience while others are sampled.

As the stream minibatches of the Tinker cookbook: the prompts of an iteration are divided into equal
parts, each of which is sent as soon as it is sampled and scored; the optimiser steps once, after
all of them. All are sampled with the same weights. A part is rewarded and compared by itself, and
has its own divisor of the loss, since what comes later is not known: parts weigh alike.
"""

from collections.abc import Iterator, Sequence

from astra_core.algorithm import collate_steps, flatten_experience
from astra_core.config import TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.reward import reward_graphs
from astra_core.rollout import Graph
from astra_core.sampler import rolled_out_in_pieces
from astra_core.training.harness import Experience, Harness
from astra_parts.algorithms.functional import Aggregation
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.services.records import Record, records_of
from astra_parts.services.service_update import policy_batches


def check_stream(config: TrainingConfiguration, num_parts: int) -> None:
    """Checks that an experience can be divided into so many parts, with one update of them all."""
    for name in ("epochs_per_experience", "gradient_accumulation_steps"):
        if (value := getattr(config, name)) != 1:
            msg = (
                f"training.{name} must be 1 with trainer.options.stream_minibatches, got {value}: "
                "an iteration is one update, of each part once"
            )
            raise ConfigurationError(msg)
    if config.num_episodes_per_experience % num_parts:
        msg = (
            "training.trainer.options.stream_minibatches must divide "
            f"num_episodes_per_experience, {config.num_episodes_per_experience}, got {num_parts}"
        )
        raise ConfigurationError(msg)


class StreamedExperience:
    """One experience, part by part.

    Args:
        harness: Of the trainer; told of the whole once it is there.
        graphs: Rollouts that exist already; None samples them.
    """

    def __init__(
        self,
        harness: Harness,
        config: TrainingConfiguration,
        *,
        iteration: int,
        num_parts: int,
        graphs: Sequence[Graph] | None = None,
    ) -> None:
        self.num_tokens = 0
        self._harness, self._config = harness, config
        self._iteration, self._num_parts = iteration, num_parts
        self._graphs: list[Graph] = []
        self._parts = self._divide(graphs)
        self._whole: Experience | None = None

    def passes(self, aggregation: Aggregation) -> Iterator[list[Record]]:
        """The records of each pass, sampled when they are asked for."""
        for graphs in self._parts:
            batches = self._batches(graphs)
            weight = self._num_parts * (sum(batch.weight for batch in batches) or 1.0)
            for batch in batches:
                self.num_tokens += batch.num_tokens
                if records := records_of(batch, aggregation=aggregation, weight=weight):
                    yield records

    def whole(self) -> Experience:
        """All of it; parts that nobody asked for are sampled now."""
        if self._whole is None:
            for _ in self._parts:
                pass
            self._whole = self._harness.experience(self._iteration, graphs=self._graphs)
        return self._whole

    def _divide(self, graphs: Sequence[Graph] | None) -> Iterator[list[Graph]]:
        sampler, iteration = self._harness.sampler, self._iteration
        if graphs is None:
            prompts = sampler.runs(iteration, self._config.num_episodes_per_experience)
            size = len(prompts) // self._num_parts
            parts = rolled_out_in_pieces(sampler, prompts, iteration=iteration, at_once=size)
        else:
            size = -(-len(graphs) // self._num_parts)
            parts = (list(graphs[at : at + size]) for at in range(0, len(graphs), size))
        for part in parts:
            self._graphs += part
            yield part

    def _batches(self, graphs: Sequence[Graph]) -> list[PolicyBatch]:
        algorithm, size = self._harness.algorithm, self._config.batch_size
        own = reward_graphs(self._harness.sampler.reward, list(graphs))
        steps = flatten_experience(algorithm, own)
        starts = range(0, len(steps), size)
        return policy_batches([collate_steps(algorithm, steps[at : at + size]) for at in starts])
