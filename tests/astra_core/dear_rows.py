"""Rows of a parametrised test of which a few are quick and the rest run with the widest tier."""

import pytest


def wide_but(rows, *quick):
    """The rows; those that are not among ``quick`` are marked wide."""
    assert set(quick) <= set(rows)
    return [row if row in quick else pytest.param(row, marks=pytest.mark.wide) for row in rows]
