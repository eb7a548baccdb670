"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table as lines."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    # An empty cell keeps one space between its bars.
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
