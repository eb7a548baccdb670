"""Runs a suite over rows in memory and reports what it found."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from tasks.expectations.facts import rollout_facts
from tasks.expectations.report import Check, ValidationReport

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

# Ids shown per check; the number of all of them stands beside.
_NUM_SAMPLES = 10


def validate_frame(
    frame: pd.DataFrame, suite: "ExpectationSuite", *, id_column: str
) -> ValidationReport:
    """Every expectation of the suite, held against the rows of a frame.

    Great Expectations runs in an ephemeral context: nothing is stored, nothing is sent.

    Args:
        frame: The rows; its index does not matter.
        suite: From ``suites``: each expectation's ``meta`` holds ``check`` and ``level``.
        id_column: Names the rows in the report.

    Returns:
        Checks in the suite's order. One that could not be made, for want of a column say, is
        reported as not held, with a note.
    """
    rows = frame.reset_index(drop=True)
    ids = rows[id_column].astype(str).tolist()
    results = {result.expectation_config.meta["check"]: result for result in _results(rows, suite)}
    checks = [
        _check(expectation, results[expectation.meta["check"]], ids)
        for expectation in suite.expectations
    ]
    return ValidationReport(subject=suite.name, num_rows=len(rows), checks=tuple(checks))


def validate_rollouts(
    frame: pd.DataFrame, *, max_failed_fraction: float, vocabulary_size: int | None = None
) -> ValidationReport:
    """The rollout suite held against the rows of rollouts.parquet.

    Args:
        frame: One row per turn.
        max_failed_fraction: Share of turns that may have failed.
        vocabulary_size: Of the attacker; None leaves the upper end of token ids unchecked.

    Raises:
        DataError: A column is missing.
    """
    from tasks.expectations.suites import rollout_suite

    suite = rollout_suite(max_failed_fraction=max_failed_fraction, vocabulary_size=vocabulary_size)
    return validate_frame(rollout_facts(frame), suite, id_column="row_id")


def _results(rows: pd.DataFrame, suite: "ExpectationSuite") -> list[Any]:
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("frame")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    # Without index columns the unexpected rows come as places in the frame, which are cheap and
    # unambiguous even where the ids are not.
    return list(batch.validate(suite, result_format={"result_format": "COMPLETE"}).results)


def _check(expectation: Any, result: Any, ids: list[str]) -> Check:
    """One result of the library in our words, without the values it quotes."""
    found = result.result or {}
    failed = not result.success
    rows = tuple(sorted(int(row) for row in found.get("unexpected_index_list") or ()))
    leaking = (found.get("details") or {}).get("sample_ids", ())
    samples = [ids[row] for row in rows[:_NUM_SAMPLES]] or list(leaking)
    is_counted = "unexpected_count" in found
    seen = found.get("unexpected_count" if is_counted else "observed_value")
    return Check(
        check=expectation.meta["check"],
        column=_column_of(expectation),
        level=expectation.meta["level"],
        success=bool(result.success),
        unexpected=float(seen) if seen is not None and (failed or is_counted) else 0.0,
        sample_ids=tuple(samples) if failed else (),
        limit=_limit_of(expectation),
        note=_note(result) if failed and not found else "",
        rows=rows if failed else (),
    )


def _column_of(expectation: Any) -> str:
    for name in ("column", "column_A", "key"):
        if value := getattr(expectation, name, None):
            return str(value)
    return ""


def _limit_of(expectation: Any) -> str:
    """The expectation's bounds as a person writes them."""
    upper = "<" if getattr(expectation, "strict_max", False) else "<="
    signs = {"min_value": ">=", "max_value": upper}
    bounds = {name: getattr(expectation, name, None) for name in signs}
    return " ".join(
        f"{signs[name]} {bound:g}" for name, bound in bounds.items() if bound is not None
    )


def _note(result: Any) -> str:
    """Why a check could not be made: the library's own word, without its trace."""
    exceptions = result.exception_info or {}
    nested = [entry for entry in exceptions.values() if isinstance(entry, dict)]
    for entry in [exceptions, *nested]:
        if message := entry.get("exception_message"):
            return "not checked: " + " ".join(str(message).split())[:200]
    return "not checked"
