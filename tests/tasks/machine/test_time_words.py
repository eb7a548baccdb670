from each_row import each_row

from tasks.machine.time_words import about, duration


@each_row(
    ("seconds", "expected"),
    [
        (0.04, "0.0 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
    ],
)
def test_what_was_measured_is_reported_in_two_units(seconds, expected):
    assert expected == duration(seconds)


@each_row(("seconds", "expected"), [(89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")])
def test_what_is_expected_is_reported_in_one_unit(seconds, expected):
    assert expected == about(seconds)
