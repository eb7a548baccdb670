"""What the conversations of a trial cost: replies of the target, its tokens, and seconds."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from astra_core.conversation import Conversation, Message
from astra_core.sampler import rolled_out
from astra_core.targets.causal_lm import CausalLM
from astra_core.training.selection.evaluation_scheme import examine
from tasks.trials.forecast import Amount

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluator
    from astra_core.rollout import Graph
    from astra_core.system import System
    from astra_core.training.trainer import Trainer


def rolled_amount(trainer: "Trainer", num_prompts: int) -> tuple[Amount, list["Graph"]]:
    """The cost of one run of a training prompt, and the rollouts of so many prompts."""
    sampler = trainer.sampler
    start = time.perf_counter()
    graphs = rolled_out(sampler, sampler.runs(0, num_prompts), iteration=0)
    return amount_of(sampler.system, graphs, seconds=time.perf_counter() - start), graphs


def examined_amount(trainer: "Trainer", evaluator: "Evaluator", *, num_prompts: int) -> Amount:
    """The cost of one dev prompt of an evaluation, also of a custom trainer's."""
    seen: list[Graph] = []
    judged = evaluator.judged

    def noted(graphs: Sequence["Graph"], **more: Any) -> Any:
        seen.extend(graphs)
        return judged(graphs, **more)

    # The rollouts of a custom trainer's ``examine`` pass through here, whatever else it does.
    evaluator.judged = noted  # type: ignore[method-assign]
    start = time.perf_counter()
    examine(trainer)
    seconds = time.perf_counter() - start
    return amount_of(trainer.sampler.system, seen, seconds=seconds, num_prompts=num_prompts)


def amount_of(
    system: "System", graphs: Sequence["Graph"], *, seconds: float, num_prompts: int | None = None
) -> Amount:
    """The average cost of the conversations of one prompt.

    ``num_prompts``: the number of prompts they belong to; by default one each.
    """
    calls = tokens_in = tokens_out = 0
    for graph in graphs:
        for num_read, replies in _answers(system, graph):
            calls += len(replies)
            tokens_in += num_read * len(replies)
            tokens_out += sum(map(len, replies))
    count = num_prompts or len(graphs) or 1
    return Amount(calls, tokens_in, tokens_out, seconds) * (1.0 / count)


def _answers(system: "System", graph: "Graph") -> list[tuple[int, tuple[tuple[int, ...], ...]]]:
    """For each turn the number of tokens a local target read, and its replies."""
    target, own = system.target, system.attacker.vocabulary
    found = []
    waiting = [(node, Conversation(graph.prompt)) for node in graph.children]
    while waiting:
        node, before = waiting.pop()
        if node.has_failed:
            continue
        asked = before.said(Message("user", node.probe_text, node.probe_ids, own))
        read = 0
        if isinstance(target, CausalLM):
            read = len(target.heard(asked, system.config.response).token_ids)
        found.append((read, node.response_ids))
        first = (node.response_texts[0], node.response_ids[0], target.vocabulary)
        waiting += [(child, asked.said(Message("assistant", *first))) for child in node.children]
    return found
