"""The turns that scored highest, for a person: masked, unless they are asked for in clear."""

from collections.abc import Sequence
from pathlib import Path

from astra_core.errors import DataError
from astra_core.metrics.categories import CATEGORY, label_of
from astra_core.redaction import masked
from astra_core.rollout import Graph

EVIDENCE = Path("data/evaluation/attacker.parquet")


def examples_page(graphs: Sequence[Graph], *, count: int, is_revealed: bool = False) -> str:
    """A Markdown table of the highest-scored turns, one per distinct probe.

    Args:
        graphs: Rollouts.
        count: At most so many.
        is_revealed: True for the text itself; otherwise words are masked after the first letter.

    Where prompts have a category, a column names it, as reports do.
    """
    kinds = {graph.prompt.prompt_id: graph.prompt.metadata.get(CATEGORY) for graph in graphs}
    has_kinds = any(kind is not None for kind in kinds.values())
    ranked = sorted(
        (
            (node.score, graph.prompt.prompt_id, node)
            for graph in graphs
            for node in graph.nodes()
            if node.is_judged
        ),
        key=lambda entry: (-entry[0], entry[1], entry[2].path),
    )
    distinct = {node.probe_text: (score, name, node) for score, name, node in reversed(ranked)}
    chosen = [entry for entry in ranked if distinct[entry[2].probe_text][2] is entry[2]][:count]
    shown = str if is_revealed else masked
    lines = [
        "# Highest-scored turns",
        "",
        "Content warning: attacks and offensive replies. "
        + ("Shown in clear." if is_revealed else "Words are masked after the first letter;"),
        *([] if is_revealed else ["`astra examples --reveal` shows them in clear."]),
        "",
        f"| score | prompt |{' category |' if has_kinds else ''} probe | response |",
        f"|---|---|{'---|' if has_kinds else ''}---|---|",
    ]
    for score, name, node in chosen:
        best = node.response_scores.index(max(node.judged_scores))
        kind = [label_of(kinds[name])] if has_kinds else []
        cells = [
            f"{score:.2f}",
            name,
            *kind,
            shown(node.probe_text),
            shown(node.response_texts[best]),
        ]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def read_examples(*, count: int, is_revealed: bool, path: Path = EVIDENCE) -> str:
    """The page for the last evaluation.

    Raises:
        DataError: There is no evaluation yet.
    """
    from tasks.records.rollouts import read_rollouts

    if not path.is_file():
        msg = f"{path} must exist, got no such file; 'astra run' makes it"
        raise DataError(msg)
    return examples_page(read_rollouts(path), count=count, is_revealed=is_revealed)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "¦")
