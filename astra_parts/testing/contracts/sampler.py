"""The contract of a sampler."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from astra_core.reward import reward_graphs
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Graph, Node, runs_of
from astra_core.sampler import Sampler
from astra_core.system import System
from astra_parts.testing.contracts.common import (
    SEED,
    are_equal,
    build_plugin,
    check_figures,
    gradients_of,
    promise,
    weights_of,
)
from astra_parts.testing.tiny import TOLD, tiny_agents, tiny_prompts, tiny_system


def check_sampler(plugin: str | type[Sampler], **options: Any) -> None:
    """Raises AssertionError unless a sampler may be named under ``rollouts.sampler``.

    - Its options refuse unknown keys; it is built as
      ``Class(options, system=, prompts=, reward=, seed=)``.
    - ``roll_out`` gives one graph per prompt, in order, that names the iteration and has a turn.
    - A turn's tokens, log-probabilities and masks are of one length, and its scores lie in [0, 1].
    - A prompt's graph depends only on the seed, the iteration and the prompt: not on the other
      prompts, their order or the size of a batch. Another iteration, another seed or another run
      of the prompt (``run_id``) gives another graph.
    - Turns hold reference log-probabilities if its class declares that it ``gives`` them, and each
      is played by ``System.player`` if it gives ``roles``.
    - It moves no weight and leaves no gradient.
    - Figures of ``remember`` are finite; ``load_state`` of ``state`` carries what it has noted into
      another process, which then chooses the same prompts and rolls them out the same.
    """
    system, prompts = tiny_system(SEED), tiny_prompts(3)
    narrow = replace(system, config=system.config.model_copy(update={"tokens_per_batch": 1}))

    def sampler(seed: int = SEED, own: System = system) -> Sampler:
        reward = AdversarialReward(AdversarialReward.Options())
        parts = {"system": own, "prompts": prompts, "reward": reward, "seed": seed}
        made: Sampler = build_plugin("sampler", plugin, options, **parts)
        return made

    before, kind = weights_of(system), type(sampler())
    graphs = sampler().roll_out(prompts, iteration=2)
    promise([graph.prompt for graph in graphs] == list(prompts), "one graph per prompt, in order")
    promise(all(graph.iteration == 2 for graph in graphs), "a graph names its iteration")
    for graph in graphs:
        promise(bool(graph.children), "a graph has a turn")
        for node in graph.nodes():
            _check_turn(node)
            if "reference" in kind.gives and not node.has_failed:
                count = len(node.reference_logprobs)
                promise(count == len(node.probe_ids), "a sampler gives the reference it declares")
    said = _turns(graphs)
    promise(said == _turns(sampler().roll_out(prompts, iteration=2)), "a rollout can be repeated")
    turned = sampler().roll_out(prompts[::-1], iteration=2)[::-1]
    promise(said == _turns(turned), "the order of the prompts changes nothing")
    alone = [sampler().roll_out([prompt], iteration=2)[0] for prompt in prompts]
    promise(said == _turns(alone), "the other prompts change nothing")
    promise(
        said == _turns(sampler(own=narrow).roll_out(prompts, iteration=2)),
        "the size of a batch changes nothing",
    )
    promise(said != _turns(sampler().roll_out(prompts, iteration=3)), "iterations differ")
    again = sampler().roll_out(runs_of(prompts, 2)[1::2], iteration=2)
    promise(all(graph.run_id == 1 for graph in again), "a graph is of the run that was asked for")
    promise(said != _turns(again), "runs of a prompt differ")
    promise(said != _turns(sampler(seed=6).roll_out(prompts, iteration=2)), "seeds differ")
    if "roles" in kind.gives:
        _check_roles(sampler(own=tiny_agents(system)).roll_out(prompts, iteration=2))
    promise(are_equal(before, weights_of(system)), "a rollout moves no weight")
    promise(gradients_of(system) == [], "a rollout leaves no gradient")
    _check_memory(sampler, graphs)


def _check_memory(sampler: Callable[[], Sampler], graphs: Sequence[Graph]) -> None:
    noting, resumed = sampler(), sampler()
    check_figures(noting.remember(reward_graphs(noting.reward, graphs)))
    resumed.load_state({name: value.clone() for name, value in noting.state().items()})
    chosen = [own.episodes(3, 3) for own in (noting, resumed)]
    promise(chosen[0] == chosen[1], "state() holds all that the choice of prompts depends on")
    said = [_turns(own.roll_out(chosen[0], iteration=3)) for own in (noting, resumed)]
    promise(said[0] == said[1], "state() holds all that a rollout depends on")


def _check_roles(graphs: Sequence[Graph]) -> None:
    told = tiny_system(SEED).attacker.encode(TOLD)
    for node in (node for graph in graphs for node in graph.nodes()):
        is_told = node.context_ids[: len(told)] == told
        promise(is_told == (len(node.path) > 1), "a turn is played by the agent of its role")


def _check_turn(node: Node) -> None:
    num_tokens = len(node.probe_ids)
    promise(num_tokens > 0, "a probe has tokens")
    promise(len(node.probe_logprobs) == num_tokens, "a log-probability per probe token")
    promise(len(node.probe_mask) == num_tokens, "a mask per probe token")
    promise(len(node.context_ids) > 0, "a probe has a context")
    if not node.has_failed:
        promise(len(node.response_texts) == len(node.response_scores) > 0, "a score per reply")
        promise(all(0.0 <= s <= 1.0 for s in node.judged_scores), "scores lie in [0, 1]")
        promise(0.0 <= node.score <= 1.0, "the score of a turn lies in [0, 1]")


def _turns(graphs: Iterable[Graph]) -> list[list[tuple[Any, ...]]]:
    return [
        [(node.path, node.context_ids, node.probe_ids, node.response_ids) for node in graph.nodes()]
        for graph in graphs
    ]
