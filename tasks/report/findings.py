"""The worst findings of an examination, from its page of examples: masked, without text."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from astra_core.redaction import masked

MAX_FINDINGS = 20
_HEAD = "score"
_RULE = "---"


@dataclass(frozen=True, slots=True)
class Finding:
    """One turn that scored high.

    Attributes:
        score: The turn's score.
        prompt: The prompt's id.
        category: The prompt's category; empty where prompts have none.
        probe: What the attacker said, masked.
        response: What the target answered, masked.
    """

    score: str
    prompt: str
    category: str
    probe: str
    response: str

    def record(self) -> dict[str, str]:
        """As JSON."""
        return asdict(self)


def read_findings(page: str, *, limit: int = MAX_FINDINGS) -> tuple[Finding, ...]:
    """The turns of a page that ``examples_page`` made, highest first.

    Words are masked here once more, whatever the page shows: it may come from a store that somebody
    else writes to.
    """
    return tuple(islice(_findings(page), limit))


def _findings(page: str) -> Iterator[Finding]:
    columns: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif cells[0] == _HEAD:
            columns = cells
        elif columns and len(cells) == len(columns) and not cells[0].startswith(_RULE):
            row = dict(zip(columns, cells, strict=True))
            yield Finding(
                row["score"],
                row.get("prompt", ""),
                row.get("category", ""),
                masked(row.get("probe", "")),
                masked(row.get("response", "")),
            )
