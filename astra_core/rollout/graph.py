"""The tree of turns that grew from a prompt."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from astra_core.rollout.prompt import Prompt
from astra_core.rollout.turn import Node


@dataclass(frozen=True, slots=True)
class Graph:
    """A prompt and the tree of turns that grew from it."""

    prompt: Prompt
    iteration: int
    children: tuple[Node, ...]

    @property
    def run_id(self) -> int:
        """Which of several runs of its prompt it is, from 0."""
        return self.prompt.run_id

    def nodes(self) -> Iterator[Node]:
        """Every turn, breadth first, siblings in order."""
        level = self.children
        while level:
            yield from level
            level = tuple(child for node in level for child in node.children)

    def groups(self) -> Iterator[tuple[Node, ...]]:
        """The siblings of every parent, breadth first; the root's children come first."""
        if self.children:
            yield self.children
        for node in self.nodes():
            if node.children:
                yield node.children

    def paths(self, *, are_judged: bool = False) -> Iterator[tuple[Node, ...]]:
        """Every rollout: the turns from the root to a leaf.

        ``are_judged``: True ends them before turns that failed or were not judged.
        """

        def keep(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(node for node in nodes if node.is_judged) if are_judged else nodes

        def walk(nodes: tuple[Node, ...], before: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
            for node in nodes:
                here = (*before, node)
                if following := keep(node.children):
                    yield from walk(following, here)
                else:
                    yield here

        yield from walk(keep(self.children), ())

    def map_turns(self, change: Callable[[Node], Node]) -> Self:
        """The graph with every turn as ``change`` gives it, over the changed turns that follow."""

        def rebuild(node: Node) -> Node:
            return replace(change(node), children=tuple(map(rebuild, node.children)))

        return replace(self, children=tuple(map(rebuild, self.children)))


def by_prompt(graphs: Iterable[Graph]) -> list[tuple[Graph, ...]]:
    """The runs of each prompt, prompts in the order of their first run."""
    runs: dict[str, list[Graph]] = {}
    for graph in graphs:
        runs.setdefault(graph.prompt.prompt_id, []).append(graph)
    return [tuple(own) for own in runs.values()]
