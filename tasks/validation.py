"""The validation stage: prompts that may be used, those that may not and why, and whether to go on.

A prompt that breaks a row-level rule is rejected with its reasons. A set that breaks a critical
rule stops the pipeline: the reports and the rejected rows are left for a person to read, the valid
splits are not written, so that nothing can go on with them by accident. (DVC keeps the outputs of
a failed stage in the working folder, unrecorded, until the stage runs again.)
"""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

from astra_core.config import SystemConfiguration
from astra_core.errors import DataError
from astra_core.files import draft_folder_of, write_json, write_text
from astra_core.registry import build
from astra_core.scorer import Scorer, checked_scores
from tasks.console import progress
from tasks.expectations import Check, ValidationReport, validate_frame
from tasks.expectations.facts import prompt_facts
from tasks.expectations.suites import prompt_row_suite, prompt_suite
from tasks.params import ValidationConfiguration
from tasks.prompts import COLUMNS, SPLITS
from tasks.stage import Dep, Metric, Out, stage

_SCORED_AT_ONCE = 1024


@stage(
    code=(
        "astra_core/scorer.py",
        "astra_core/scorers",
        "plugins",
        "tasks/expectations",
        "tasks/validation.py",
    )
)
def validate_prompts(
    validation: ValidationConfiguration,
    system: SystemConfiguration,
    *,
    folder: Dep = Path("data/prompts"),
    valid: Out = Path("data/valid"),
    report: Metric = Path("reports/validation.json"),
    page: Out = Path("reports/validation.md"),
) -> ValidationReport:
    """Valid prompts by split, rejected ones with their reasons, and the report about both.

    Raises:
        DataError: The prompts cannot be read or lack a column.
        ScorerError: The scorer gave something that is no score.
        GateError: A critical check failed; the report says which, and for which rows.
    """
    frame = prompt_facts(_read_prompts(folder))
    frame["prompt_score"] = _prompt_scores(frame, validation, build("scorer", system.scorer))
    one_by_one = validate_frame(frame, prompt_row_suite(validation), id_column="prompt_id")
    reasons = _reasons(one_by_one.checks, len(frame))
    frame["rejected"] = [float(bool(names)) for names in reasons]
    as_a_set = validate_frame(frame, prompt_suite(validation), id_column="prompt_id")
    result = _joined(one_by_one, as_a_set, frame)
    _write_prompts(frame, reasons, valid, accept=result.success)
    write_json(result.to_record(), report)
    write_text(result.to_markdown(), page)
    result.require_success(page)
    return result


def _read_prompts(folder: Path) -> pd.DataFrame:
    """All splits in one frame, with the columns the prompts stage writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for split in SPLITS:
        path = folder / f"{split}.parquet"
        try:
            tables.append(pq.read_table(path, columns=None).select(list(COLUMNS)))
        except (KeyError, OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            msg = (
                f"{path} must be a parquet file with the columns {list(COLUMNS)}, got: {reason}; "
                "run the stage 'prompts' again"
            )
            raise DataError(msg) from None
    frame: pd.DataFrame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    if frame.empty:
        msg = f"{folder} must hold at least one prompt, got none; run the stage 'prompts' again"
        raise DataError(msg)
    return frame


def _prompt_scores(
    frame: pd.DataFrame, validation: ValidationConfiguration, scorer: Scorer
) -> list[float]:
    """What the scorer says of each prompt; NaN for those that are rejected for their length anyway.

    A scorer may be a model with a context of its own, and is the dear part of this stage.
    """
    fits = (
        frame["text"].notna()
        & (frame["num_characters"] <= validation.max_characters)
        & (frame["num_words"] <= validation.max_words)
    )
    texts = frame.loc[fits, "text"].tolist()
    scores: list[float] = []
    with progress("scoring prompts", len(texts)) as advance:
        for first in range(0, len(texts), _SCORED_AT_ONCE):
            batch = texts[first : first + _SCORED_AT_ONCE]
            scores.extend(checked_scores(scorer, batch))
            advance(len(batch))
    # A missing score counts as fine in a suite, so none may slip through here.
    remaining = iter(scores)
    return [next(remaining) if fit else math.nan for fit in fits]


def _reasons(checks: tuple[Check, ...], num_rows: int) -> list[list[str]]:
    """For every row the row-level checks it fails, in the suite's order."""
    reasons: list[list[str]] = [[] for _ in range(num_rows)]
    for check in checks:
        for row in check.rows:
            reasons[row].append(check.check)
    return reasons


def _joined(
    one_by_one: ValidationReport, as_a_set: ValidationReport, frame: pd.DataFrame
) -> ValidationReport:
    """One report of both suites, with the numbers a person asks for first."""
    accepted = Counter(frame.loc[frame["rejected"] == 0.0, "split"])
    return replace(
        as_a_set,
        checks=_stopping(one_by_one.checks) + as_a_set.checks,
        num_rejected=int(frame["rejected"].sum()),
        reasons={check.check: len(check.rows) for check in one_by_one.checks if check.rows},
        splits={split: accepted[split] for split in SPLITS},
    )


def _stopping(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """A row-level check that could not be made rejected nobody, so it stops the pipeline."""
    return tuple(
        replace(check, level="critical") if not check.success and not check.rows else check
        for check in checks
    )


def _write_prompts(
    frame: pd.DataFrame, reasons: list[list[str]], folder: Path, *, accept: bool
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, pa.string()) for column in COLUMNS])
    rows = frame[list(COLUMNS)]
    rejected = frame["rejected"] != 0.0
    with draft_folder_of(folder) as draft:
        for split in SPLITS if accept else ():
            chosen = rows[(rows["split"] == split) & ~rejected]
            table = pa.Table.from_pandas(chosen, schema=schema, preserve_index=False)
            pq.write_table(table.replace_schema_metadata(None), draft / f"{split}.parquet")
        table = pa.Table.from_pandas(rows[rejected], schema=schema, preserve_index=False)
        names = pa.array([names for names in reasons if names], pa.list_(pa.string()))
        table = table.replace_schema_metadata(None).append_column("reasons", names)
        pq.write_table(table, draft / "rejected.parquet")
