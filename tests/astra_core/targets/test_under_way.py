import os
import signal
import subprocess
import sys

import pytest

from astra_core.targets.under_way import Owner, is_alive

KILLED = """
import os, signal, sys
from pathlib import Path
from astra_core.targets.under_way import Owner
owner = Owner(Path(sys.argv[1]))
print(owner.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.real
def test_an_owner_is_alive_until_it_ends_however_it_ends(tmp_path):
    database = tmp_path / "mine.sqlite"
    program = [sys.executable, "-c", KILLED, str(database)]
    ended = subprocess.run(program, check=False, capture_output=True, text=True)
    assert -signal.SIGKILL == ended.returncode
    killed = ended.stdout.strip()
    left = [path.name for path in tmp_path.iterdir()]

    assert [f"mine.{killed}.owner"] == left
    assert not is_alive(database, killed)
    owner = Owner(database)
    assert is_alive(database, owner.name)
    # What a kill has left is cleared away, and only the owner of a file can read it.
    assert [f"mine.{owner.name}.owner"] == [path.name for path in tmp_path.iterdir()]
    assert 0o600 == next(tmp_path.iterdir()).stat().st_mode & 0o777
    owner.close()
    assert not is_alive(database, owner.name)
    assert [] == list(tmp_path.iterdir())


def test_who_inherits_the_lock_keeps_the_owner_alive(tmp_path):
    database = tmp_path / "mine.sqlite"
    owner = Owner(database)
    heir = os.dup(owner.lock)
    os.close(owner.lock)

    assert is_alive(database, owner.name)
    os.close(heir)
    assert not is_alive(database, owner.name)
    owner.close.detach()
