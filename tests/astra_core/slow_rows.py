"""Rows of a parametrised test of which a few are quick and the rest run with the slow tests."""

import pytest


def slow_but(rows, *quick):
    """The rows; those that are not among ``quick`` are marked slow."""
    assert set(quick) <= set(rows)
    return [row if row in quick else pytest.param(row, marks=pytest.mark.slow) for row in rows]
