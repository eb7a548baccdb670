from each_row import each_row

from tasks.sources.csv_numbers import cell_value, column_kinds


@each_row(
    ("cells", "kind"),
    [
        (["1", "-20", "0"], int),
        (["1", "", None], int),
        (["1", "0.5"], float),
        (["1e-05", "-2.5E3"], float),
        (["1", "one"], str),
        (["007"], str),
        (["+1"], str),
        (["1,000"], str),
        ([" 1"], str),
        (["nan"], str),
        (["1e999"], str),
        (["12345678901234567890"], str),
        (["\u0661"], str),
        (["true"], str),
        (["", None], str),
        ([], str),
    ],
)
def test_a_column_holds_numbers_if_every_filled_cell_is_one(cells, kind):
    assert {"x": kind} == column_kinds([{"x": cell} for cell in cells], ["x"])


def test_columns_are_judged_apart():
    rows = [{"a": "1", "b": "1", "c": "x"}, {"a": "2", "b": "1.5", "c": "1"}]

    assert {"a": int, "b": float, "c": str} == column_kinds(rows, ["a", "b", "c"])


def test_a_cell_is_what_its_column_is():
    assert [3, 3.0, "3"] == [cell_value("3", kind) for kind in (int, float, str)]
    assert [None, ""] == [cell_value("", kind) for kind in (int, str)]
    assert cell_value(None, str) is None
