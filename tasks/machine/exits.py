"""``os._exit`` by a plug-in: it would end a stage at once, with any status and without a word."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from astra_core.errors import PluginError


@contextmanager
def exits_refused() -> Iterator[None]:
    """In the body, ``os._exit`` raises in this process, so that drafts are removed and it is told.

    Processes that were forked from it end as they ask to.
    """
    leave, own = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:
            leave(status)
        caller = sys._getframe(1)  # noqa: SLF001 - no other way to see who asks
        place = f"{caller.f_code.co_filename}, line {caller.f_lineno}"
        msg = f"a stage must end by itself, got os._exit({status}) in {place}; raise an error there"
        raise PluginError(msg)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
