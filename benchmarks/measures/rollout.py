"""Seconds per tree: the tree sampler against the plain way, and whether both agree.

``python -m benchmarks rollout`` prints them. The plain way is ASTRA-RL's order of calls on
transformers' own ``generate``; see ``benchmarks.reference.plain``. While it is timed it draws with
torch's generator, from no keys. The likelihood of the probes belongs to both sides: the sampler
gets it from the pass that answers them, the plain way from one more pass.
"""

from dataclasses import replace
from itertools import count
from typing import Literal

from astra_core.rollout import Graph
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from benchmarks.figures import Figure, Report, cost_table
from benchmarks.limits import Machine, rollout_works
from benchmarks.reference.plain import plain_rollout, share_of_differing_tokens, target_of
from benchmarks.reference.plain_passes import plain_scores
from benchmarks.shapes import SEED, Shape, prompts, sampler, system
from benchmarks.timing import Effort, Way, costs, threads

PLAIN = "plain way"
# A uniform number that falls within rounding of a token's edge draws its neighbour, and all that
# follows in that branch differs.
MOST_DIFFERING_PERCENT = 5.0


def report(shape: Shape, effort: Effort) -> Report:
    """Seconds per tree of each way, and the share of tokens that differ."""
    own = system(shape)
    grown = sampler(shape, own)
    found = costs(_ways(shape, effort, own, grown), effort)
    with threads(effort.threads):
        equality = _equality(shape, own, grown)
        machine = Machine.measured()
    works = rollout_works(own.attacker.model, shape, effort.trees)
    limit = sum(map(machine.seconds, works)) / effort.trees
    title = f"rollout of {shape.name}, seconds per tree"
    ours, plain = found[0], next(cost for cost in found if cost.name == PLAIN)
    return Report(
        tables=[cost_table(title, found, threads=effort.threads)],
        figures=[
            *equality,
            Figure("rollout: share of the machine's limit", 100.0 * limit / ours.wall_s, "%"),
            Figure("rollout: ratio at the machine's limit", plain.wall_s / limit, "x"),
        ],
        ratios={"rollout": plain.wall_s / ours.wall_s},
    )


def _ways(shape: Shape, effort: Effort, own: System, grown: TreeSampler) -> list[Way]:
    seeds, iterations = prompts(shape, effort.trees), count()
    grow, few, many = grown.roll_out, effort.plain_repetitions, effort.repetitions
    config = own.config.model_copy(update={"precision": "bf16"})
    rounded = sampler(shape, replace(own, config=config))
    with threads(effort.threads):
        (sample,) = grow(seeds[:1], iteration=next(iterations))
    return [
        Way(
            f"ours, {effort.trees} trees at once",
            lambda: grow(seeds, iteration=next(iterations)),
            many,
            effort.trees,
        ),
        Way("ours, 1 tree", lambda: grow(seeds[:1], iteration=next(iterations)), many),
        Way(
            f"ours in bf16, {effort.trees} trees at once",
            lambda: rounded.roll_out(seeds, iteration=next(iterations)),
            few,
            effort.trees,
        ),
        Way(f"{PLAIN}, freed memory kept", lambda: _plain(shape, own, draws="native"), few),
        Way(PLAIN, lambda: _plain(shape, own, draws="native"), few, is_ours=False),
        Way(
            "of which likelihood of the probes",
            lambda: _likelihoods(own, sample),
            few,
            is_ours=False,
        ),
    ]


def _plain(shape: Shape, own: System, *, draws: Literal["keyed", "native"]) -> list[Graph]:
    return plain_rollout(
        own,
        prompts(shape, 1),
        tree_width=shape.tree_width,
        tree_depth=shape.tree_depth,
        num_responses=1,
        seed=SEED,
        draws=draws,
    )


def _likelihoods(own: System, graph: Graph) -> None:
    for nodes in graph.groups():
        plain_scores(target_of(own), [n.context_ids for n in nodes], [n.probe_ids for n in nodes])


def _equality(shape: Shape, own: System, grown: TreeSampler) -> list[Figure]:
    """The differences between the sampler's first tree, grown beside others, and the plain one."""
    ours = grown.roll_out(prompts(shape, 2), iteration=0)[:1]
    plain = _plain(shape, own, draws="keyed")
    share = 100.0 * share_of_differing_tokens(ours, plain)
    gap = max(
        abs(value - other)
        for node, twin in zip(ours[0].nodes(), plain[0].nodes(), strict=True)
        if (node.context_ids, node.probe_ids) == (twin.context_ids, twin.probe_ids)
        for value, other in zip(
            (*node.probe_logprobs, *node.reference_logprobs, *node.target_logprobs),
            (*twin.probe_logprobs, *twin.reference_logprobs, *twin.target_logprobs),
            strict=True,
        )
    )
    return [
        Figure(
            "rollout: tokens that differ from the plain way's", share, "%", MOST_DIFFERING_PERCENT
        ),
        Figure("rollout: largest gap of a log-probability", gap, "nats", 1e-3),
    ]
