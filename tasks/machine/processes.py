"""Several processes of this machine that run one stage together."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from tasks.pipeline.failures import stop_on_terminate

_HOST = "127.0.0.1"
_GRACE_S = 8.0


def run_together(act: Callable[[], int], count: int) -> list[int]:
    """The exit status of each of ``count`` processes that call ``act``; a signal's is negative.

    They find torchrun's variables in their environment. When one fails, the others are ended; none
    outlives the caller. They stay in its process group, which processes of torchrun would leave.

    ``act``: returns an exit status; it is pickled.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.multiprocessing.spawn import ProcessException, start_processes

    # torch warns about every process that it ends, and sets its loggers' levels when imported.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    # By default the store would listen on every network of the machine.
    listener = socket.create_server((_HOST, 0))
    port = listener.getsockname()[1]
    descriptor = listener.detach()
    store = TCPStore(
        _HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    part = partial(_take_part, act=act, count=count, port=store.port)
    start: Any = start_processes
    context = start(part, nprocs=count, join=False)
    try:
        with suppress(ProcessException):
            while not context.join():
                pass
    finally:
        for process in context.processes:
            process.terminate()
        for process in context.processes:
            process.join(_GRACE_S)
            process.kill()
            process.join()
    return [process.exitcode for process in context.processes]


def _take_part(rank: int, *, act: Callable[[], int], count: int, port: int) -> None:
    """Ends this process with the status that ``act`` returns."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store exists: process 0 must not open another
    }
    # A machine's name need not resolve; every machine has the loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stop_on_terminate()
    sys.exit(act())
