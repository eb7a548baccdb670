"""Graphs as plain records and back, without loss, so that a checkpoint can hold them as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from astra_core.rollout.graph import Graph
from astra_core.rollout.prompt import Prompt
from astra_core.rollout.turn import Context, Failure, Node, Probe, Replies


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
