from tasks.records.intake import Intake, read_intake, read_places, write_intake


def test_a_folder_without_an_intake_has_no_figures(tmp_path):
    assert {} == read_intake(tmp_path)
    assert {} == read_places(tmp_path, ["a"])


def test_figures_are_read_back_with_the_share(tmp_path):
    write_intake(Intake(8, 2, 1, 0, 3), tmp_path)
    found = read_intake(tmp_path)

    assert (0.25, 1, 3) == tuple(
        found[name] for name in ("duplicate_fraction", "num_dev_duplicates", "num_kept_together")
    )


def test_of_no_row_there_is_no_duplicate():
    assert 0.0 == Intake(0, 0, 0, 0, 0).figures["duplicate_fraction"]
