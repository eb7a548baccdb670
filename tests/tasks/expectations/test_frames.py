from each_row import each_row

from tasks.expectations import Check, ValidationReport
from tasks.expectations.frames import join_reports

HELD = Check("url", "text", "row", success=True, unexpected=0)


def rejecting(*rows):
    ids = tuple(f"id {row}" for row in rows[:10])
    return Check("url", "text", "row", False, len(rows), sample_ids=ids, rows=rows)


def report_of(check, num_rows=20):
    return ValidationReport(subject="prompts", num_rows=num_rows, checks=(check,))


def test_rows_of_a_piece_are_counted_on_from_the_pieces_before():
    report = join_reports([report_of(rejecting(1, 4)), report_of(HELD, 5), report_of(rejecting(0))])
    (check,) = report.checks

    assert 45 == report.num_rows
    assert (1, 4, 25) == check.rows
    assert ("id 1", "id 4", "id 0") == check.sample_ids
    assert (False, 3.0, "row") == (check.success, check.unexpected, check.level)


def test_a_check_that_held_on_every_piece_holds():
    assert (HELD,) == join_reports([report_of(HELD)] * 3).checks


def test_no_more_ids_are_shown_than_of_one_piece():
    (check,) = join_reports([report_of(rejecting(*range(8)))] * 2).checks

    assert 10 == len(check.sample_ids)
    assert 16 == len(check.rows)


@each_row("others", [(), (HELD,), (rejecting(2),)])
def test_a_check_that_could_not_be_made_on_a_piece_stops(others):
    unmade = Check("url", "text", "row", success=False, unexpected=0, note="not checked: no text")
    (check,) = join_reports([report_of(piece) for piece in (*others, unmade)]).checks

    assert ("critical", False, "not checked: no text") == (check.level, check.success, check.note)
