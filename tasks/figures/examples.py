"""The turns that scored highest, for a person: masked, unless the texts are asked for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.redaction import mask
from astra_core.rollout import Graph, Node, Prompt
from astra_parts.metrics.categories import CATEGORY, label_of
from tasks.records.reports import table_cell

EVIDENCE = Path("data/evaluation/attacker.parquet")


@dataclass(frozen=True, slots=True)
class Example:
    """One turn.

    Attributes:
        category: That prompt's category; None where no prompt has one.
        probe: The probe as it is shown, masked or not.
    """

    score: float
    prompt_id: str
    category: str | None
    probe: str
    response: str


def examples_of(graphs: Sequence[Graph], *, count: int, is_revealed: bool = False) -> list[Example]:
    """The turns that scored highest, one per distinct probe; see ``examples_page``."""
    turns = [(graph.prompt, node) for graph in graphs for node in graph.nodes() if node.is_judged]
    turns.sort(key=lambda own: (-own[1].score, own[0].prompt_id, own[1].path))
    distinct: dict[str, tuple[Prompt, Node]] = {}
    for prompt, node in turns:
        distinct.setdefault(node.probe_text, (prompt, node))
    has_kinds, shown = _has_kinds(graphs), str if is_revealed else mask
    return [
        Example(
            score=node.score,
            prompt_id=prompt.prompt_id,
            category=label_of(prompt.metadata.get(CATEGORY)) if has_kinds else None,
            probe=shown(node.probe_text),
            response=shown(
                node.response_texts[node.response_scores.index(max(node.judged_scores))]
            ),
        )
        for prompt, node in list(distinct.values())[:count]
    ]


def _has_kinds(graphs: Sequence[Graph]) -> bool:
    return any(graph.prompt.metadata.get(CATEGORY) is not None for graph in graphs)


def examples_page(graphs: Sequence[Graph], *, count: int, is_revealed: bool = False) -> str:
    """A Markdown table of the highest-scored turns, one per distinct probe.

    ``is_revealed``: true for the text itself; otherwise words are masked after the first letter.

    Where prompts have a category, a column names it, as in reports.
    """
    has_kinds = _has_kinds(graphs)
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
    for each in examples_of(graphs, count=count, is_revealed=is_revealed):
        kind = [] if each.category is None else [each.category]
        cells = [f"{each.score:.2f}", each.prompt_id, *kind, each.probe, each.response]
        lines.append("| " + " | ".join(table_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def read_examples(*, count: int, is_revealed: bool, path: Path = EVIDENCE) -> str:
    """The page for the last evaluation."""
    return examples_page(_read_graphs(path), count=count, is_revealed=is_revealed)


def examples_record(
    *, count: int, is_revealed: bool, path: Path = EVIDENCE
) -> list[dict[str, Any]]:
    """The same turns as JSON."""
    found = examples_of(_read_graphs(path), count=count, is_revealed=is_revealed)
    return [asdict(each) for each in found]


def _read_graphs(path: Path) -> list[Graph]:
    from tasks.records.rollouts import read_rollouts

    if not path.is_file():
        msg = f"{path} must exist, got no such file; 'astra run' makes it"
        raise DataError(msg)
    return read_rollouts(path)
