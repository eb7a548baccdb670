"""The exam that a source of prompts allows, before anything of it was read but its rows."""

from itertools import islice

from tasks.params.schema import Params
from tasks.promotion.power import Exam
from tasks.sources.files import read_rows
from tasks.sources.rows import columns_of

# More prompts than these are enough for every duel.
_MOST_ROWS = 100_000


def expected_exam(params: Params) -> Exam | None:
    """The exam if every prompt of the source is valid; None for a hub, which is not asked.

    Raises ConfigurationError if the file lacks the column, DataError if the file is broken.
    """
    prompts = params.prompts
    if prompts.source == "hub":
        return None
    count = prompts.num_builtin
    if prompts.source == "file" and prompts.path is not None:
        rows = read_rows(prompts.path, columns_of(prompts))
        count = sum(1 for _ in islice(rows, _MOST_ROWS))
    return Exam(params, round(count * prompts.test_share(count)))
