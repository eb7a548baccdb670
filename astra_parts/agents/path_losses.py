"""Each agent's loss as a function of all agents' weights, over whole conversations.

A path of a tree is as likely as all agents together make it, so its importance ratio is the product
of theirs. The loss of an agent is the negative clipped ratio of every path times what the agent
earns on it: the sum of the rewards from its first turn on, against the mean of its tree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from astra_core.models.rows import TokenRows, pad_lists, pad_rows, padded_logprobs
from astra_core.rollout import Graph, Node
from astra_core.system import System
from astra_parts.algorithms.functional import clipped_surrogate
from astra_parts.algorithms.functional.lookahead import Loss, Weights

_MIN_SPREAD = 1e-4  # in reward units; below it an experience teaches nothing

RatedPath = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class _Spoken:
    """The turns of one agent in a piece.

    Attributes:
        old: Log-probabilities under the policy that sampled, nats.
        kept: 1 at trained tokens.
        of_path: 1 where a path has the turn.
    """

    rows: TokenRows
    old: Float[Tensor, "B T"]
    kept: Float[Tensor, "B T"]
    of_path: Float[Tensor, "P B"]


def path_losses(
    graphs: Sequence[Graph], system: System, learning: Sequence[str], *, clip: float
) -> dict[str, list[Loss]]:
    """The losses of the agents that learn, in pieces of whole trees.

    A loss is divided by the agent's trained tokens on all paths, and what is earned by its spread,
    so pieces add up to the same sum however large they are. A path with a turn that failed or was
    not judged is left out.
    """
    trees = [own for graph in graphs if (own := _rated_paths(graph))]
    found: dict[str, list[Loss]] = {name: [] for name in learning}
    worth = {name: _worth(trees, system, name) for name in learning}
    for first, piece in _pieces(trees, system.config.tokens_per_batch or 16384):
        paths = [path for tree in piece for path in tree]
        spoken = _turns_of_agents(paths, system)
        for name in learning:
            gains = worth[name][first : first + len(paths)].to(system.attacker.device)
            loss = partial(_loss, system=system, spoken=spoken, gains=gains, clip=clip)
            found[name].append(loss)
    return found


def _rated_paths(graph: Graph) -> list[RatedPath]:
    return [path for path in graph.paths() if all(node.is_judged for node in path)]


def _pieces(
    trees: Sequence[Sequence[RatedPath]], budget: int
) -> Iterator[tuple[int, list[Sequence[RatedPath]]]]:
    """Trees that are read together, and the number of paths before them."""
    piece: list[Sequence[RatedPath]] = []
    first = size = 0
    for tree in trees:
        nodes = {id(node): node for path in tree for node in path}.values()
        cost = sum(len(node.context_ids) + len(node.probe_ids) for node in nodes)
        if piece and size + cost > budget:
            yield first, piece
            first, size, piece = first + sum(map(len, piece)), 0, []
        piece.append(tree)
        size += cost
    if piece:
        yield first, piece


def _worth(trees: Sequence[Sequence[RatedPath]], system: System, name: str) -> Tensor:
    """What each path is worth to an agent, normalised and divided by its trained tokens."""
    tokens, gains = 0, []
    for tree in trees:
        earned = [_earnings(path, system, name) for path in tree]
        mean = sum(earned) / len(earned)
        gains += [own - mean for own in earned]
        tokens += sum(
            sum(node.probe_mask)
            for path in tree
            for turn, node in enumerate(path)
            if system.player(turn).name == name
        )
    found = torch.tensor(gains)
    spread = float(found.std(correction=0)) if len(gains) else 0.0
    return found / (spread * tokens) if spread > _MIN_SPREAD else torch.zeros(len(gains))


def _earnings(path: RatedPath, system: System, name: str) -> float:
    """The rewards from the agent's first turn on; 0 if it has none."""
    turns = (turn for turn in range(len(path)) if system.player(turn).name == name)
    return sum(node.reward for node in path[next(turns, len(path)) :])


def _turns_of_agents(paths: Sequence[RatedPath], system: System) -> dict[str, _Spoken]:
    found, device = {}, system.attacker.device
    for agent in system.agents:
        nodes = {
            id(node): node
            for path in paths
            for turn, node in enumerate(path)
            if system.player(turn).name == agent.name
        }
        if not nodes:
            continue
        own = list(nodes.values())
        contexts, probes = [node.context_ids for node in own], [node.probe_ids for node in own]
        rows = pad_rows(contexts, probes, pad_id=0, device=device)
        width = rows.continuation_ids.shape[1]
        has = [[float(any(node is turn for turn in path)) for node in own] for path in paths]
        found[agent.name] = _Spoken(
            rows,
            pad_lists([node.probe_logprobs for node in own], width).to(device),
            pad_lists([node.probe_mask for node in own], width).float().to(device),
            torch.tensor(has, device=device),
        )
    return found


def _loss(
    weights: Mapping[str, Weights],
    *,
    system: System,
    spoken: Mapping[str, _Spoken],
    gains: Float[Tensor, " P"],
    clip: float,
) -> Float[Tensor, ""]:
    ratios: Any = 0.0
    for agent in system.agents:
        if (own := spoken.get(agent.name)) is None:
            continue
        model: Any = agent.model.model
        if agent.name in weights:
            model = partial(_call, model, dict(weights[agent.name]))
        # The fused kernels have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            moved = (padded_logprobs(model, own.rows) - own.old) * own.kept
        ratios = ratios + own.of_path.to(moved.dtype) @ moved.sum(dim=1)
    losses = clipped_surrogate(ratios[:, None], gains[:, None], clip_low=clip, clip_high=clip)
    return losses.sum()


def _call(model: Any, weights: dict[str, Tensor], **inputs: Any) -> Any:
    return functional_call(model, weights, (), inputs)
