"""Memory that ran out, whichever library noticed it."""

import errno
import resource

from astra_core.errors import OutOfMemoryError
from astra_core.errors.exception_text import shorten

# What libraries say whose exceptions are of no class of their own.
_WORDS = (
    "memoryerror",
    "cannot allocate memory",
    "can't allocate memory",
    "unable to allocate",
    "out of memory",
    "not enough memory",
    "bad_alloc",
    "(os error 12)",
    "failed to map segment",
    "can't start new thread",
)

# What the libraries take that a run imports, and their threads. With less of it compiled code
# aborts, which says nothing, in this process or in any that it starts.
_LEAST = 1_500_000_000


def too_little_memory() -> str:
    """Why nothing can run within this process's limit of addresses; empty if something can."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= _LEAST:
        return ""
    return (
        f"a process must have at least {_LEAST / 1e6:.0f} MB of memory, got{memory_limit()}; "
        "raise 'ulimit -v'"
    )


def memory_limit() -> str:
    """The limit of addresses, in words that end a clause; empty if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f" a limit of {limit / 1e6:.0f} MB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or what led to it, says that there is no more memory."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        is_full = isinstance(current, OSError) and current.errno == errno.ENOMEM
        if is_full or isinstance(current, MemoryError | OutOfMemoryError):
            return True
        if any(word in str(current).lower() for word in _WORDS):
            return True
        current = current.__cause__ or current.__context__
    return False


def out_of_memory(error: BaseException) -> OutOfMemoryError:
    """The error that tells the user what to do.

    ``error``: one of which ``is_out_of_memory`` is true.
    """
    if isinstance(error, OutOfMemoryError):
        return error
    limit = memory_limit()
    bound = limit and f", under{limit}"
    reason = shorten(f"{type(error).__name__}: {error}", limit=90)
    return OutOfMemoryError(
        f"this step must have more memory, got none{bound} ({reason}); lower "
        "system.tokens_per_batch or training.batch_size, end other programs, or raise 'ulimit -v'"
    )
