"""``make test-routes`` collects some files alone; no test that it is meant for lies elsewhere."""

import subprocess
from pathlib import Path

from pages import ROOT


def test_every_file_with_the_mark_is_one_that_the_command_collects():
    command = ["make", "--dry-run", "test-routes"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    marked = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.routes" in path.read_text("utf-8") and path != Path(__file__)
    ]

    assert marked
    assert set() == set(marked) - set(told.split())
