"""Tables as Markdown has them."""

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    # An empty cell keeps one blank between its bars.
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
