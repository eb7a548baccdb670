"""Runs a suite over rows in memory and reports what it found."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from tasks.expectations.facts import rollout_facts
from tasks.expectations.profile import rollout_profile
from tasks.expectations.report import Check, ValidationReport
from tasks.expectations.speech import NO_LIMITS, TokenLimits
from tasks.records.data_profile import DataProfile

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

# Ids shown per check, beside the number of all of them.
_NUM_SAMPLES = 10


def validate_frame(
    frame: pd.DataFrame,
    suite: "ExpectationSuite",
    *,
    id_column: str,
    spelled: Callable[[Any], str] = str,
) -> ValidationReport:
    """The report on the rows of a frame, with every expectation of the suite checked.

    Great Expectations runs in an ephemeral context: nothing is stored, nothing is sent.

    Args:
        suite: From ``suites``: each expectation's ``meta`` holds ``check`` and ``level``.
        spelled: The id of a row, and any other key, as the report shows it.

    Returns checks in the suite's order. One that could not be made, for example because a column is
    missing, is reported as failed, with a note.
    """
    rows = frame.reset_index(drop=True)
    results = {result.expectation_config.meta["check"]: result for result in _results(rows, suite)}
    checks = [
        _check(expectation, results[expectation.meta["check"]], rows[id_column], spelled=spelled)
        for expectation in suite.expectations
    ]
    return ValidationReport(subject=suite.name, num_rows=len(rows), checks=tuple(checks))


def join_reports(reports: Sequence[ValidationReport]) -> ValidationReport:
    """One report on consecutive pieces of a frame, as if they had been validated together.

    For row-level checks only: a check of a table as a whole is not the sum over its pieces. A check
    that could not be made on some piece is critical, because it let every row there pass.
    """
    starts = [0, *accumulate(report.num_rows for report in reports)]
    pieces = zip(*(report.checks for report in reports), strict=True)
    checks = tuple(_joined_check(piece, starts) for piece in pieces)
    return replace(reports[0], num_rows=starts[-1], checks=checks)


def _joined_check(pieces: Sequence[Check], starts: Sequence[int]) -> Check:
    unmade = [piece for piece in pieces if not piece.success and not piece.rows]
    placed = zip(pieces, starts, strict=False)
    samples = chain.from_iterable(piece.sample_ids for piece in pieces)
    return replace(
        pieces[0],
        level="critical" if unmade else pieces[0].level,
        success=all(piece.success for piece in pieces),
        unexpected=math.fsum(piece.unexpected for piece in pieces),
        sample_ids=tuple(islice(samples, _NUM_SAMPLES)),
        note=unmade[0].note if unmade else "",
        rows=tuple(start + row for piece, start in placed for row in piece.rows),
        num_checked=sum(piece.num_checked for piece in pieces),
    )


def validate_rollouts(
    pieces: Iterable[pd.DataFrame],
    *,
    max_failed_fraction: float,
    vocabulary_size: int,
    limits: TokenLimits = NO_LIMITS,
) -> ValidationReport:
    """The report on the rows of rollouts.parquet, checked by the rollout suite.

    ``pieces``: one row per turn, each piece with whole graphs. They are read one after the other,
    and only numbers are kept of each. ``vocabulary_size``: the attacker's.

    Returns its profile does not yet know whose the turns and the scores are.
    """
    from tasks.expectations.rollout_suite import rollout_suite

    facts = pd.concat((rollout_facts(piece, limits) for piece in pieces), ignore_index=True)
    suite = rollout_suite(
        max_failed_fraction=max_failed_fraction,
        vocabulary_size=vocabulary_size,
        are_verdicts=bool(facts["score"].dropna().isin([0.0, 1.0]).all()),
    )
    num_prompts = int(facts["prompt_id"].nunique())
    return replace(
        validate_frame(facts, suite, id_column="row_id"),
        profile=DataProfile("", num_prompts, rollout_profile(facts)),
    )


def _results(rows: pd.DataFrame, suite: "ExpectationSuite") -> list[Any]:
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("frame")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    # Without index columns the library gives unexpected rows as places in the frame, which are
    # cheap, and unambiguous even where the ids are not.
    return list(batch.validate(suite, result_format={"result_format": "COMPLETE"}).results)


def _check(
    expectation: Any, result: Any, ids: pd.Series, *, spelled: Callable[[Any], str]
) -> Check:
    """One result of the library in our words, without the values it quotes."""
    found = result.result or {}
    failed = not result.success
    rows = tuple(sorted(int(row) for row in found.get("unexpected_index_list") or ()))
    leaking = (found.get("details") or {}).get("sample_ids", ())
    keys = [ids.iloc[row] for row in rows[:_NUM_SAMPLES]] or leaking
    samples = (str(key) if pd.isna(key) else spelled(key) for key in keys)
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
        observed=None if is_counted or seen is None else float(seen),
        num_checked=int(found.get("element_count", 0)),
        expectation=expectation,
    )


def _column_of(expectation: Any) -> str:
    names = (getattr(expectation, name, None) for name in ("column", "column_A", "key"))
    return next((str(name) for name in names if name), "")


def _limit_of(expectation: Any) -> str:
    """The expectation's bounds as a person would write them."""
    upper = "<" if getattr(expectation, "strict_max", False) else "<="
    lower = ">" if getattr(expectation, "strict_min", False) else ">="
    signs = {"min_value": lower, "max_value": upper}
    bounds = ((sign, getattr(expectation, name, None)) for name, sign in signs.items())
    return " ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def _note(result: Any) -> str:
    """Why a check could not be made, in the library's own words without its trace."""
    exceptions = result.exception_info or {}
    nested = [entry for entry in exceptions.values() if isinstance(entry, dict)]
    for entry in [exceptions, *nested]:
        if message := entry.get("exception_message"):
            return "not checked: " + " ".join(str(message).split())[:200]
    return "not checked"
