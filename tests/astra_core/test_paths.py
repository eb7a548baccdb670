import os

import pytest
from each_row import each_row

from astra_core.paths import found_at, is_file, kind_of


@pytest.fixture
def folder(tmp_path):
    """One of each kind."""
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "link").symlink_to("file")
    return tmp_path


@each_row(
    ("name", "kind"),
    [
        ("file", "a file"),
        ("link", "a file"),
        ("", "a folder"),
        ("pipe", "a pipe"),
        ("circle", "links in a circle"),
        ("none", "nothing there"),
        ("file/below", "below a file"),
        ("x" * 5000, "a name that is too long"),
        ("a\0b", "a name with a NUL character"),
    ],
)
def test_whatever_lies_there_is_reported(folder, name, kind):
    assert kind == kind_of(folder / name)
    assert (kind == "a file") == is_file(folder / name)


def test_a_path_is_shown_with_what_lies_there():
    assert "'/dev/null' (a device)" == found_at("/dev/null")
    assert 120 > len(found_at("x" * 5000))
