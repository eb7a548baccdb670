"""What attackers that nobody trained reach at the cost of the trained one's evaluation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import Choice
from astra_core.errors import ConfigurationError, DataError, RolloutError
from astra_core.files import record_digest
from astra_core.metrics.statistics import paired_gain, rate_interval
from astra_core.models.folders import attacker_digest
from astra_core.rollout import Graph, Prompt
from astra_parts.metrics.detection import proportion
from astra_parts.metrics.strategies import hits_of, unique_per_thousand
from tasks.figures.examination import Examiner, rates
from tasks.records.baselines import TRAINED, UNTRAINED, BaselineRecord, BaselineRow
from tasks.records.calibration import Number
from tasks.records.models import read_model_paths
from tasks.records.reports import read_record, write_record

if TYPE_CHECKING:
    # Imported late: naming a stage must not load torch.
    from astra_core.evaluator import Evaluator
    from astra_core.system import System
    from astra_core.target import Target
    from astra_parts.attackers.rollouts import Tries
    from astra_parts.attackers.scripts import Script

KEPT = Path(".astra/baselines")
"""What each attacker reached, so that a command that was stopped does not ask again."""
COUNT = 8
"""Attackers of a whole table."""
_SHORT = 16
_MOST_FAILED = 0.05
"""Share of the turns without a reply above which nothing is said of an attacker."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What one attacker reached, before it is compared.

    ``rates``: the success rate of each prompt; NaN where no reply could be judged.
    """

    replies: int
    judged: int
    rates: tuple[Number, ...]
    unique_hits: float | None
    model_calls: int | None = None


Measure = Callable[[], tuple[Sequence[Graph], int | None]]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Lets every attacker ask the same target the same number of times.

    Attributes:
        weights: The folder of the trained attacker.
        speaker: The folder of a chat model, or any target, that plays the prompted attackers; None
            for the untrained attacker's model.
    """

    examiner: Examiner
    prompts: Sequence[Prompt]
    weights: Path
    speaker: Path | Choice | None

    def table(self, advance: Callable[[], None]) -> BaselineRecord:
        """The table of all of them; ``advance`` is called after each.

        Raises RolloutError if the trained attacker gets too few replies or no score, or nobody any
        more, ConfigurationError if the speaker cannot be used. What was measured before is kept.
        """
        evaluation = self.examiner.params.evaluation
        system, untrained = self.examiner.load_attacker(None)
        key, who = self.examiner.key(system, self.prompts), attacker_digest(self.weights)
        # Which hits differ depends on the words that are known.
        shared = [key, sorted(self.examiner.vocabulary)]
        found: dict[str, Reached] = {}
        left_out: dict[str, str] = {}
        for name, parts, measure in self._attackers(system, untrained, who):
            try:
                if isinstance(measure, str):
                    left_out[name] = measure
                else:
                    found[name] = self._read_or_measure(system, [*shared, name, *parts], measure)
            except RolloutError as error:
                # Its subclasses say that the target or the judge cannot be asked any more.
                if name == TRAINED or type(error) is not RolloutError:
                    raise
                left_out[name] = str(error)
            advance()
        return BaselineRecord(
            evaluation_key=key,
            attacker=who,
            num_prompts=len(self.prompts),
            num_rollouts=evaluation.num_rollouts,
            depth=evaluation.depth,
            num_responses=evaluation.num_responses,
            rows=tuple(self._rows(found)),
            left_out=left_out,
        )

    def _attackers(
        self, system: "System", untrained: str, who: str
    ) -> Iterator[tuple[str, list[Any], Measure | str]]:
        """Each attacker's name, what decides its rollouts, and how these are made or why not."""
        from astra_parts.attackers.rollouts import Tries
        from astra_parts.attackers.scripts import SCRIPTS
        from astra_parts.attackers.templates import TEMPLATES

        # One that cannot be used is told before anything is asked.
        model, evaluation = self._speaker(system), self.examiner.params.evaluation
        tries = Tries(
            system=system,
            prompts=self._evaluator.prompts(system),
            num_rollouts=evaluation.num_rollouts,
            depth=evaluation.depth,
            num_responses=evaluation.num_responses,
            threshold=evaluation.threshold,
            seed=self.examiner.params.training_seed,
        )
        yield TRAINED, [who], self._trained_graphs
        yield "no attack", [], lambda: (tries.plain(), None)
        own = [untrained, system.training_digest()]
        yield UNTRAINED, own, partial(self._evaluation_graphs, system)
        if tries.num_tries > 1:
            name = f"best of {tries.num_tries} untrained probes"
            yield name, own, lambda: (tries.best_of(), None)
        else:
            yield "best of several untrained probes", [], "a rollout is one reply"
        yield "bandit over templates", [TEMPLATES], lambda: (tries.bandit(TEMPLATES), None)
        for script in SCRIPTS:
            if isinstance(model, str):
                yield script.name, [], model
            else:
                told = [script.instruction, script.tokens, model.digest()]
                yield script.name, told, partial(_prompted_graphs, tries, script, model)

    def _trained_graphs(self) -> tuple[Sequence[Graph], None]:
        return self._evaluation_graphs(self.examiner.load_attacker(self.weights)[0])

    def _evaluation_graphs(self, system: "System") -> tuple[Sequence[Graph], None]:
        return self._evaluator.evaluate(system).graphs, None

    @property
    def _evaluator(self) -> "Evaluator":
        from astra_core.evaluator import Evaluator

        own = self.examiner
        return Evaluator(
            own.params.evaluation,
            prompts=self.prompts,
            reward=own.reward,
            seed=own.params.training_seed,
        )

    def _speaker(self, system: "System") -> "Target | str":
        """The chat model of the prompted attackers, or why there is none."""
        from astra_core.models.lora import share_frozen
        from astra_core.models.pretrained import device_for
        from astra_core.target import Surroundings
        from astra_parts.attackers.prompted import chat_model

        surroundings = Surroundings(
            system.config,
            device=device_for(self.examiner.params.machine.device),
            machine=system.attacker.plan.machine,
        )
        if self.speaker is not None:
            return chat_model(self.speaker, surroundings)
        own = read_model_paths(self.examiner.base)["attacker"]
        try:
            found = chat_model(own, surroundings)
        except ConfigurationError:
            return "the untrained attacker has no chat template to be told by, see --speaker"
        for speaker in found.language_models:
            share_frozen(speaker.model, system.reference.model)
        return found

    def _read_or_measure(self, system: "System", parts: list[Any], measure: Measure) -> Reached:
        """What was kept of an earlier command, or else what is measured now."""
        path = KEPT / f"{record_digest(parts)[:_SHORT]}.json"
        if path.is_file():
            return read_record(path, Reached)
        try:
            with system.target.evaluating():
                graphs, model_calls = measure()
            reached = self._figures(graphs, model_calls, system.target.weights)
        except DataError as error:  # no reply could be judged, perhaps those of the next can
            raise RolloutError(str(error)) from error
        write_record(reached, path)
        return reached

    def _figures(
        self, graphs: Sequence[Graph], model_calls: int | None, weights: Mapping[str, float]
    ) -> Reached:
        from astra_core.sampler import losses

        lost = losses(graphs)
        if lost.num_failed > _MOST_FAILED * lost.num_turns:
            msg = f"{lost.num_failed} of {lost.num_turns} turns failed; first: {lost.failure}"
            raise RolloutError(msg)
        found = self._evaluator.evaluation_of(graphs, weights=weights)
        nodes = [node for graph in graphs for node in graph.nodes()]
        threshold = self.examiner.params.evaluation.threshold
        hits = [node.probe_text for graph in graphs for node in hits_of(graph, threshold)]
        return Reached(
            replies=sum(len(node.response_texts) for node in nodes),
            judged=sum(len(node.judged_scores) for node in nodes),
            rates=tuple(rates(found)),
            unique_hits=unique_per_thousand(graphs, hits, self.examiner.vocabulary),
            model_calls=model_calls,
        )

    def _rows(self, found: dict[str, Reached]) -> Iterator[BaselineRow]:
        how = self.examiner.believer.bootstrap
        confidence = self.examiner.params.evaluation.confidence
        ids = [prompt.prompt_id for prompt in self.prompts]
        trained = found[TRAINED].rates
        for name, own in found.items():
            known = [rate for rate in own.rates if not math.isnan(rate)]
            gains = [after - rate for after, rate in zip(trained, own.rates, strict=True)]
            yield BaselineRow(
                name=name,
                replies=own.replies,
                judged=own.judged,
                success=rate_interval(own.rates, **how),
                prompts_hit=proportion(
                    sum(rate > 0 for rate in known), len(known), confidence=confidence
                ),
                unique_hits=own.unique_hits,
                gain=None if name == TRAINED else paired_gain(ids, gains, **how),
                model_calls=own.model_calls,
            )


def _prompted_graphs(tries: "Tries", script: "Script", model: "Target") -> tuple[list[Graph], int]:
    graphs, used = tries.follow_script(script, model)
    return graphs, used.calls
