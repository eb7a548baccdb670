"""Tables of text, in Markdown and for a terminal."""

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table as lines."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    # An empty cell keeps one space between its bars.
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
