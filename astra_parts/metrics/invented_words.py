"""How often probes hold a word that is not known."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from astra_core.metrics.diversity import words
from astra_core.rollout import Graph, Node


@dataclass(frozen=True, slots=True)
class InventedWords:
    """What counts as an invented word of a probe.

    ``max_tokens``: a probe of so many tokens was cut, so its last word may be half a word and is
    left out.
    """

    known: Collection[str]
    max_tokens: int

    def metrics(self, graphs: Iterable[Graph]) -> dict[str, float]:
        """``nonword_rate`` (share of words) and ``nonword_probe_rate`` (of probes with one)."""
        found = [self._are_invented(node) for graph in graphs for node in graph.nodes()]
        num_words, num_probes = sum(map(len, found)), len(found)
        return {
            "nonword_rate": sum(map(sum, found)) / max(num_words, 1) if found else math.nan,
            "nonword_probe_rate": sum(map(any, found)) / num_probes if found else math.nan,
        }

    def share(self, graph: Graph) -> float:
        """The share of a graph's probes with an invented word; NaN without a probe."""
        return self.metrics([graph])["nonword_probe_rate"]

    def _are_invented(self, node: Node) -> list[bool]:
        """For each whole word of a probe whether it is invented."""
        text = node.probe_text
        own = words(text)
        if len(node.probe_ids) >= self.max_tokens and text[-1:].isalnum():
            own = own[:-1]
        return [not word.isdigit() and word not in self.known for word in own]
