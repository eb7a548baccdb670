"""Tests over many rows that fail for one reason: ``@each_row("text", ["a", "b"])``.

Written like ``pytest.mark.parametrize``; a test over rows of their own reasons uses that. All rows
are tried, and every one that fails is shown, with its values. ``wide_but`` marks the rows of a
parametrised test of which only a few are quick.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable

import pytest

SHOWN = 300  # letters of a row's values


def each_row(names: str | tuple[str, ...], rows: Iterable | Callable[[], Iterable]):
    """A decorator: the test is called with each row's values, as ``names`` has them.

    Each row has a ``tmp_path`` and a ``monkeypatch`` of its own; other fixtures are shared. A
    function of no arguments gives its rows when the test runs, for what takes time to find.
    """
    fields = re.split(r"\s*,\s*", names) if isinstance(names, str) else list(names)

    def wrap(test):
        given = inspect.signature(test).parameters
        kept = [parameter for name, parameter in given.items() if name not in fields]
        missing = set(fields) - set(given)
        if missing:
            msg = f"{test.__name__} takes no {sorted(missing)}"
            raise TypeError(msg)

        @functools.wraps(test)
        def over_rows(**fixtures):
            tried = list(rows() if callable(rows) else rows)
            assert tried, "there is no row"
            failures = []
            for place, row in enumerate(tried):
                values = dict(zip(fields, _values(row, len(fields)), strict=True))
                try:
                    _call(test, values, fixtures, place)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told below
                    failures.append(_noted(error, values))
            if len(failures) == 1:
                raise failures[0]
            if failures:
                msg = f"{len(failures)} of {len(tried)} rows fail"
                raise ExceptionGroup(msg, failures)

        del over_rows.__wrapped__  # pytest would ask it for its fixtures
        over_rows.__signature__ = inspect.Signature(kept)
        return over_rows

    return wrap


def wide_but(rows, *quick):
    """The rows, for ``parametrize``; those that are not among ``quick`` are marked wide."""
    assert set(quick) <= set(rows)
    return [row if row in quick else pytest.param(row, marks=pytest.mark.wide) for row in rows]


def _values(row, number):
    if hasattr(row, "values") and hasattr(row, "marks"):  # pytest.param
        if row.marks:
            msg = "a row with marks is a test of its own: use pytest.mark.parametrize"
            raise TypeError(msg)
        return row.values
    return (row,) if number == 1 else row


def _call(test, values, fixtures, place):
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"row{place}"
        own["tmp_path"].mkdir()
    if "monkeypatch" not in own:
        return test(**values, **own)
    with pytest.MonkeyPatch.context() as own["monkeypatch"]:
        return test(**values, **own)


def _noted(error, values):
    if not isinstance(error, Exception):  # "DID NOT RAISE"
        error = AssertionError(str(error)).with_traceback(error.__traceback__)
    shown = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    error.add_note(f"row: {shown[:SHOWN]}")
    return error
