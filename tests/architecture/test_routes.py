"""``make test-routes`` looks only into folders; no test that it is meant for lies elsewhere."""

import re

from pages import ROOT


def test_every_file_with_the_mark_lies_where_the_command_looks():
    (told,) = re.findall(r"^ROUTES := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    folders = [ROOT / name for name in told.split()]
    marked = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.routes" in path.read_text("utf-8") and path.name != "test_routes.py"
    ]

    assert marked
    assert [] == [path for path in marked if not any(map(path.is_relative_to, folders))]
