"""What the conversations of a trial cost: replies of the target, its tokens, and seconds."""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from astra_core.conversation import Conversation, Message
from astra_core.sampler import rolled_out
from astra_core.target import checked_figures
from astra_core.targets.causal_lm import CausalLM
from astra_core.training.selection.evaluation_scheme import examine
from tasks.trials.forecast import Amount

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluator
    from astra_core.rollout import Graph
    from astra_core.system import System
    from astra_core.training.trainer import Trainer


def rolled_amount(
    trainer: "Trainer", num_prompts: int, *, account: str
) -> tuple[Amount, list["Graph"]]:
    """The cost of one run of a training prompt, and the rollouts of so many prompts."""
    sampler = trainer.sampler
    with sampler.system.target.account_for(account):
        start = time.perf_counter()
        graphs = rolled_out(sampler, sampler.runs(0, num_prompts), iteration=0)
        return amount_of(sampler.system, graphs, seconds=time.perf_counter() - start), graphs


def examined_amount(
    trainer: "Trainer", evaluator: "Evaluator", *, num_prompts: int, account: str
) -> Amount:
    """The cost of one dev prompt of an evaluation, also of a custom trainer's."""
    seen: list[Graph] = []
    judged = evaluator.evaluation_of

    def note_graphs(graphs: Sequence["Graph"], **more: Any) -> Any:
        seen.extend(graphs)
        return judged(graphs, **more)

    # The rollouts of a custom trainer's ``examine`` pass through here, whatever else it does.
    evaluator.evaluation_of = note_graphs  # type: ignore[method-assign]
    system = trainer.sampler.system
    with system.target.account_for(account):
        start = time.perf_counter()
        examine(trainer)
        seconds = time.perf_counter() - start
        return amount_of(system, seen, seconds=seconds, num_prompts=num_prompts)


def amount_of(
    system: "System", graphs: Sequence["Graph"], *, seconds: float, num_prompts: int | None = None
) -> Amount:
    """The average cost of the conversations of one prompt.

    The tokens of a local target are counted from its turns, those of another as its account has
    them on average; they are NaN where it counts none.

    ``num_prompts``: the number of prompts they belong to; by default one each.
    """
    turns = [node for graph in graphs for node in graph.nodes() if not node.has_failed]
    calls = sum(len(node.response_ids) for node in turns)
    target = system.target
    if isinstance(target, CausalLM):
        tokens_in = float(sum(_tokens_read(target, system, graph) for graph in graphs))
        tokens_out = float(sum(len(ids) for node in turns for ids in node.response_ids))
    else:
        used = checked_figures(target)
        share = calls / used["calls"] if used.get("calls") else math.nan
        tokens_in, tokens_out = (
            share * used.get(name, math.nan) for name in ("tokens_in", "tokens_out")
        )
    count = num_prompts or len(graphs) or 1
    return Amount(calls, tokens_in, tokens_out, seconds) * (1.0 / count)


def _tokens_read(target: CausalLM, system: "System", graph: "Graph") -> int:
    """The number of tokens that a local target read, its whole context for each reply."""
    total, own = 0, system.attacker.vocabulary
    waiting = [(node, Conversation(graph.prompt)) for node in graph.children]
    while waiting:
        node, before = waiting.pop()
        if node.has_failed:
            continue
        asked = before.say(Message("user", node.probe_text, node.probe_ids, own))
        read = target.heard(asked, system.config.response).token_ids
        total += len(read) * len(node.response_ids)
        first = (node.response_texts[0], node.response_ids[0], target.vocabulary)
        waiting += [(child, asked.say(Message("assistant", *first))) for child in node.children]
    return total
