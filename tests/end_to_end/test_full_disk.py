"""A disk that really fills up: a stage ends in a line, and resumes to the same bytes."""

import shutil
import subprocess
import sys

import pytest
from project import environment
from shared import PREPARED, finished_project

from astra_core.files import file_digest

# Bytes left on the disk: room for logs, none for what a training leaves.
ROOM = 1_000_000
WEIGHTS = "models/attacker/model.safetensors"
# A disk of its own needs a mount, which a namespace of its own lets anybody make.
SPACE = ("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private")
SCRIPT = """\
set -e
mount -t tmpfs -o size=2g none "$disk"
cp -a "$project/." "$disk"
cd "$disk"
free=$(df --output=avail -B1 . | tail -n 1)
fallocate -l $((free - room)) filler
set +e
"$python" -m tasks training >"$out/full.out" 2>"$out/full.err"
echo $? >"$out/full.status"
df --output=avail -B1 . | tail -n 1 >"$out/left"
rm filler
"$python" -m tasks training >"$out/again.out" 2>"$out/again.err"
echo $? >"$out/again.status"
cp "$weights" "$out/weights"
"""


def _can_mount():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*SPACE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.wide,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not _can_mount(), reason="no namespace of its own can be had here"),
]


def test_a_training_on_a_full_disk_ends_in_a_line_and_resumes(tmp_path_factory):
    quiet = finished_project(tmp_path_factory)
    root = tmp_path_factory.mktemp("full")
    project = quiet.copy_after(root / "project", *PREPARED)
    disk, out = root / "disk", root / "out"
    disk.mkdir()
    out.mkdir()
    told = {"disk": disk, "project": project, "out": out, "room": ROOM, "weights": WEIGHTS}
    variables = {name: str(value) for name, value in told.items()} | {"python": sys.executable}
    script = [*SPACE, "sh", "-c", SCRIPT]
    subprocess.run(script, env=environment(disk) | variables, check=True, timeout=1500)

    full = (out / "full.err").read_text("utf-8")
    assert "2\n" == (out / "full.status").read_text("utf-8"), full
    assert "must have room for" in full
    assert "Traceback" not in full
    assert int((out / "left").read_text("utf-8")) < ROOM
    assert "0\n" == (out / "again.status").read_text("utf-8"), (out / "again.err").read_text(
        "utf-8"
    )
    assert file_digest(quiet.folder / WEIGHTS) == file_digest(out / "weights")
