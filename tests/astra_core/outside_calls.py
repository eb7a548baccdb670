"""A trap on the way out of this machine: who is asked for is noted, and nobody is reached."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL = {"localhost", "127.0.0.1", "::1", "", None}
_noted: list[list[str]] = []


def _note(event: str, arguments: tuple) -> None:
    if not _noted or event not in {"socket.getaddrinfo", "socket.connect"}:
        return
    address = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
    # The address of a socket in the file system is text, that of a network a tuple.
    host = address[0] if isinstance(address, tuple) else address
    is_file = event == "socket.connect" and not isinstance(address, tuple)
    host = host.decode() if isinstance(host, bytes) else host
    if is_file or host in _LOCAL:
        return
    _noted[-1].append(str(host))
    message = f"the trap let nobody ask for {host}"
    raise OSError(message)


@contextmanager
def outside_calls() -> Iterator[list[str]]:
    """Yields the hosts that are asked for in the body, whoever asks; the hub counts as online."""
    # Read when imported: another test may have switched the hub off for the whole process.
    from huggingface_hub import constants

    was_offline, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    if not _installed:
        sys.addaudithook(_note)  # cannot be taken away again
        _installed.append(True)
    _noted.append([])
    try:
        yield _noted[-1]
    finally:
        _noted.pop()
        constants.HF_HUB_OFFLINE = was_offline


_installed: list[bool] = []
