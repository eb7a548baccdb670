"""Experiences collected ahead by older policies, while earlier ones are learned from.

The policy that samples experience ``i`` is version ``max(0, i - K)``, with ``K`` being
``training.staleness.max_versions``: a schedule, which no timing changes, so the same parameters
give the same bytes on any executor. An executor with workers of its own does the work in the
background; ``local`` does it at once. A checkpoint holds what was collected ahead, so a
killed run goes on with the same trees even where a target elsewhere never answers twice the same.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from astra_core.extensions.calls import plugin_call
from astra_core.rolling import Rolled
from astra_core.rollout import Graph, Prompt
from astra_core.rollout.turn import Context, Failure, Node, Probe, Replies
from astra_core.sampler import Sampler, check_graphs, rolled_out
from astra_core.training.distribution.distributed import World


@dataclass(slots=True)
class _Begun:
    """An experience that is being collected, or has been."""

    version: int
    prompts: Sequence[Prompt] = ()
    rolled: "Future[list[Rolled]] | None" = None
    graphs: list[Graph] | None = None


class Ahead:
    """What a Harness has begun to collect.

    ``num_dropped``: experiences that were collected and not learned from, because the loop
    continued at another iteration.
    """

    def __init__(
        self, sampler: Sampler, *, max_versions: int, num_episodes: int, world: World
    ) -> None:
        self._sampler = sampler
        self._max_versions = max_versions
        self._num_episodes = num_episodes
        self._world = world
        self._begun: dict[int, _Begun] = {}
        self.num_dropped = 0

    def begin(self, now: int, *, is_known: bool = False) -> None:
        """Begins to collect the experience that the present policy samples.

        ``now``: the training step that begins, which is the attacker's version.
        """
        wanted = range(now + int(is_known), now + self._max_versions + 1)
        # Older or younger than in the schedule: a loop jumped.
        for iteration in [each for each in self._begun if each not in wanted]:
            del self._begun[iteration]
            self.num_dropped += 1
        for iteration in wanted:
            if iteration not in self._begun:
                self._begun[iteration] = self._start(iteration, version=now)

    def take(self, iteration: int) -> tuple[list[Graph], int]:
        """The graphs of an experience that was begun, and the version that sampled them."""
        begun = self._begun.pop(iteration)
        return self._finish(begun), begun.version

    def settle(self) -> None:
        """Waits until everything that was begun is there; a task of all processes."""
        for begun in self._begun.values():
            self._finish(begun)

    def state(self) -> dict[str, Tensor]:
        """The experiences collected and not yet learned from, by iteration."""
        self.settle()
        found = {"num_dropped": torch.tensor(self.num_dropped)}
        for iteration, begun in self._begun.items():
            graphs = [graph_record(graph) for graph in begun.graphs or ()]
            text = json.dumps({"version": begun.version, "graphs": graphs})
            found[f"{iteration:06d}"] = torch.frombuffer(
                bytearray(text.encode()), dtype=torch.uint8
            )
        return found

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores it."""
        self._begun.clear()
        for name, tensor in sorted(state.items()):
            if name == "num_dropped":
                self.num_dropped = int(tensor)
                continue
            record = json.loads(tensor.numpy().tobytes())
            graphs = [graph_of(own) for own in record["graphs"]]
            self._begun[int(name)] = _Begun(record["version"], graphs=graphs)

    def _start(self, iteration: int, *, version: int) -> _Begun:
        sampler, world = self._sampler, self._world
        prompts = world.share(sampler.runs(iteration, self._num_episodes))
        begun = _Begun(version, prompts)
        crew = sampler.system.crew
        if crew is None or crew.executor.is_here or not prompts:
            begun.rolled = Future()
            begun.rolled.set_result([Rolled(self._here(prompts, iteration), 0.0)])
        else:
            begun.rolled = _in_background(crew.rollout_call(sampler, prompts, iteration=iteration))
        return begun

    def _here(self, prompts: Sequence[Prompt], iteration: int) -> list[Graph]:
        """The rollouts of this process, of which too many may have failed."""
        if not prompts:
            return []
        with self._sampler.in_parts():
            return rolled_out(self._sampler, prompts, iteration=iteration)

    def _finish(self, begun: _Begun) -> list[Graph]:
        """The graphs of all processes, of which too many must not have failed."""
        if begun.graphs is None:
            sampler = self._sampler
            with plugin_call("sampler", sampler, "roll_out"):
                rolled = begun.rolled.result() if begun.rolled else []
            own = [graph for each in rolled for graph in each.graphs]
            own = check_graphs(sampler, begun.prompts, own) if begun.prompts else own
            begun.graphs = self._world.whole(own)
            sampler.refuse_many_failures(begun.graphs)
        return begun.graphs


def _in_background(work: Callable[[], list[Rolled]]) -> "Future[list[Rolled]]":
    """The result or error of ``work``, from a thread that ends with this process."""
    future: Future[list[Rolled]] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="rollouts ahead").start()
    return future


def graph_record(graph: Graph) -> dict[str, Any]:
    """The graph as mappings, lists, numbers and text."""
    prompt = graph.prompt
    return {
        "prompt": {
            "prompt_id": prompt.prompt_id,
            "text": prompt.text,
            "metadata": dict(prompt.metadata),
            "run_id": prompt.run_id,
        },
        "iteration": graph.iteration,
        "children": [_node_record(node) for node in graph.children],
    }


def graph_of(record: Mapping[str, Any]) -> Graph:
    """The graph of a ``graph_record``, also after it was JSON."""
    children = tuple(map(_node_of, record["children"]))
    return Graph(Prompt(**record["prompt"]), record["iteration"], children)


def _node_record(node: Node) -> dict[str, Any]:
    kind = "failure" if isinstance(node.outcome, Failure) else "replies"
    outcome = {own.name: getattr(node.outcome, own.name) for own in fields(node.outcome)}
    if "labels" in outcome:
        outcome["labels"] = [dict(labels) for labels in outcome["labels"]]
    return {
        "path": list(node.path),
        "context": asdict(node.context),
        "probe": asdict(node.probe),
        kind: outcome,
        "reward": node.reward,
        "children": [_node_record(child) for child in node.children],
    }


def _node_of(record: Mapping[str, Any]) -> Node:
    replies = record.get("replies")
    return Node(
        path=tuple(record["path"]),
        context=Context(**_tuples(record["context"])),
        probe=Probe(**_tuples(record["probe"])),
        outcome=Replies(**_tuples(replies)) if replies else Failure(**record["failure"]),
        reward=record["reward"],
        children=tuple(map(_node_of, record["children"])),
    )


def _tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    """The value with lists, at any depth, turned back into tuples."""
    return {
        name: tuple(tuple(own) if isinstance(own, list) else own for own in value)
        if isinstance(value, list | tuple)
        else value
        for name, value in record.items()
    }
