"""What a bandit over untrained probes reaches on the prompts of an evaluation."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from astra_core.errors import BudgetError, DataError, TargetError
from astra_core.rollout import Graph
from astra_parts.metrics.strategies import hits_of, unique_per_thousand
from tasks.records.evaluation import BANDIT

if TYPE_CHECKING:
    # Imported late: naming a stage must not load torch.
    from astra_core.evaluator import Evaluation, Evaluator
    from astra_core.system import System

_MOST_FAILED = 0.05
"""Share of the turns without a reply above which nothing is said of the bandit."""


def with_bandit(
    untrained: "Evaluation",
    system: "System",
    evaluator: "Evaluator",
    *,
    first: Sequence[Graph],
    vocabulary: Collection[str],
    seed: int,
) -> "Evaluation":
    """The evaluation with a bandit's success, its different hits, and what its search cost.

    Its winners are said on prompts that the search has not seen, so their success is not that of
    the luckiest. Nothing is added where the target's budget is spent, too many calls fail, or no
    reply can be judged.
    """
    from astra_parts.samplers.bandit import first_scores, halve, pulling, replay

    config = evaluator.config
    pull = pulling(system, [graph.prompt for graph in first], seed=seed)
    prompts = [graph.prompt for graph in untrained.graphs]
    shape = (config.num_rollouts, config.depth, config.num_responses)
    try:
        won = halve(
            first_scores(first), pull, threshold=config.threshold, budget=config.bandit_calls
        )
        graphs = replay(system, prompts, won.winners, shape=shape, seed=seed)
        said = evaluator.evaluation_of(graphs, weights=untrained.weights)
    except (BudgetError, TargetError, DataError):
        return untrained
    if said.figures["failed_rate"] > _MOST_FAILED:
        return untrained
    hits = [node.probe_text for graph in said.graphs for node in hits_of(graph, config.threshold)]
    rate = {f"{BANDIT}_success_rate": said.intervals["attack_success_rate"]}
    figures = {
        f"{BANDIT}_unique_attacks_per_1000_replies": unique_per_thousand(
            said.graphs, hits, vocabulary
        ),
        f"{BANDIT}_probes": float(won.num_probes),
        f"{BANDIT}_calls": float(won.calls),
    }
    return replace(
        untrained, intervals=untrained.intervals | rate, figures=untrained.figures | figures
    )
