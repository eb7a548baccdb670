"""Seconds per token of each part of a training, by processor time on one thread.

A neighbour moves processor time far less than it does the clock, so these hold for a busy machine
too. They are constants of a processor and a shape.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from astra_core.config import Choice
from astra_core.registry import build
from astra_core.scorer import checked_scores
from benchmarks.measures.update import learner
from benchmarks.shapes import Shape, prompts, rewarded_graphs, sampler, system
from benchmarks.timing import threads
from tasks.machine.tables import markdown

SCORER = "profanity"
"""The pipeline's default."""


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """Processor seconds per token.

    Attributes:
        rollout: Of a token that attacker or target samples, reading what came before included.
        score: Of a token of a reply, by the default scorer.
        update: Of a token that the attacker reads in an update of DPO, its reference's figures
            being there.
    """

    rollout: float
    score: float
    update: float

    def table(self) -> str:
        """One row for each."""
        rows = [
            ["rolling out, per sampled token", f"{self.rollout * 1e6:.1f} µs"],
            [f"scoring, per token of a reply, by `{SCORER}`", f"{self.score * 1e6:.1f} µs"],
            ["an update, per token read", f"{self.update * 1e6:.1f} µs"],
        ]
        return markdown(["processor time on one thread", "measured"], rows)


def token_costs(shape: Shape, *, num_trees: int) -> TokenCosts:
    """Of so many trees at once; each part is done once before it is timed."""
    own = system(shape)
    with threads(1):
        grown, seeds = sampler(shape, own), prompts(shape, num_trees)
        graphs, rollout_s = _timed(lambda: grown.roll_out(seeds, iteration=0))
        nodes = [node for graph in graphs for node in graph.nodes()]
        replies = [text for node in nodes for text in node.response_texts]
        num_replied = sum(len(ids) for node in nodes for ids in node.response_ids)
        num_sampled = num_replied + sum(len(node.probe_ids) for node in nodes)
        scorer = build("scorer", Choice(name=SCORER))
        _, score_s = _timed(lambda: checked_scores(scorer, replies))
        learned = learner(shape, own, rewarded_graphs(shape, own, num_trees))
        update, update_s = _timed(lambda: learned.step(num_trees))
    return TokenCosts(
        rollout=rollout_s / num_sampled,
        score=score_s / num_replied,
        update=update_s / update.num_tokens,
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What the second of two calls gives, and its processor seconds."""
    call()
    used = time.process_time()
    found = call()
    return found, time.process_time() - used
