from each_row import each_row

from astra_core.errors.excerpt import LINE_LIMIT, excerpt, nearest, shortened


@each_row("value", ["x", 3, -1.5, None, True, [1, 2], {"a": 1}])
def test_a_short_value_is_as_python_writes_it(value):
    assert repr(value) == excerpt(value)


LONG = ("x" * 9000, 10**200, 10**9000, [[1] * 99] * 99, {1: "y" * 999})


# Not by the values themselves: pytest would write the largest number into a name.
@each_row("place", range(len(LONG)))
def test_a_long_value_keeps_to_its_limit(place):
    assert 80 >= len(excerpt(LONG[place]))


def test_a_line_break_in_a_value_breaks_no_line():
    assert "\n" not in excerpt("a\nb")
    assert "a b" == shortened("a\n  b\n")


def test_of_a_long_line_the_beginning_and_the_end_stay():
    line = shortened(f"subject must {'x' * 900}; way out")

    assert LINE_LIMIT == len(line)
    assert line.startswith("subject must ")
    assert line.endswith("; way out")


@each_row(
    ("name", "meant"), [("AdamW", "adamw"), ("DPO", "dpo"), ("bias", "Bias"), ("nothing", "")]
)
def test_the_nearest_name_is_found_whatever_its_capitals(name, meant):
    assert meant == nearest(name, ["adam", "adamw", "dpo", "Bias"])
