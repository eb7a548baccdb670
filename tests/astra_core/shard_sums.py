"""Work for tests of executors: to be imported by workers, so it stands in a module of its own."""

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from astra_core.errors import DataError
from astra_core.executor import Work


@dataclass(frozen=True)
class Sums(Work):
    """Adds the weight to a number; dies, waits or fails where the shard says so.

    Shards are (number, act). ``pause`` takes 0.3 s. ``die`` and ``wait`` happen once, to who makes
    ``folder/number``.
    """

    folder: Path
    key: str = "sums"

    def prepare(self, kept):
        (self.folder / f"prepared {os.getpid()}").touch()
        return {"weight": 0.0, "works": kept}

    def renew(self, prepared, data):
        prepared["weight"] = float(data)

    def do(self, prepared, shard):
        number, act = shard
        if act == "fail":
            msg = "a shard must be good, got a bad one; correct it"
            raise DataError(msg)
        if act == "break":
            raise ZeroDivisionError(act)
        if act == "pause":
            time.sleep(0.3)
            return number + prepared["weight"], os.getpid()
        if act == "die always" or (act and self._is_first(number)):
            if act != "wait":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60.0)
        return number + prepared["weight"], os.getpid()

    def _is_first(self, number):
        try:
            (self.folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def bar_into(told):
    """A progress bar that notes its title and length, its moves and its end."""

    @contextmanager
    def bar(*what):
        told.append(what)
        yield told.append
        told.append("end")

    return bar
