"""Expectations under the name and the level that they are reported by.

The library is loaded when one is made, not when this module is imported.
"""

from typing import Any

from tasks.expectations.report import Level


def of_ok(kind: Any, check: str, *, level: Level = "critical", **rest: Any) -> Any:
    """An expectation of the turns that did not fail."""
    from great_expectations.expectations.row_conditions import Column

    return named(kind, check, level, row_condition=Column("failed") == 0.0, **rest)


def of_judged(kind: Any, check: str, *, level: Level = "critical", **rest: Any) -> Any:
    """An expectation of the turns with a judged reply."""
    from great_expectations.expectations.row_conditions import Column

    is_judged = (Column("failed") == 0.0) & (Column("unjudged") == 0.0)
    return named(kind, check, level, row_condition=is_judged, **rest)


def of_ok_holds(check: str, column: str) -> Any:
    """A critical expectation that a fact is true of every turn that did not fail."""
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return of_ok(ExpectColumnValuesToBeInSet, check, column=column, value_set=[True])


def holds(check: str, column: str) -> Any:
    """A critical expectation that a fact is true of every row."""
    from great_expectations.expectations import ExpectColumnValuesToBeInSet

    return named(ExpectColumnValuesToBeInSet, check, column=column, value_set=[True])


def named(kind: Any, check: str, level: Level = "critical", **rest: Any) -> Any:
    """An expectation under the name and level it is reported by."""
    severity = "critical" if level == "critical" else "warning"
    return kind(severity=severity, meta={"check": check, "level": level}, **rest)
