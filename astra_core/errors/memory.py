"""Memory that ran out, whichever library noticed it."""

import errno
import resource

from astra_core.errors import OutOfMemoryError
from astra_core.errors.excerpt import shortened

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

    Args:
        error: One of which ``is_out_of_memory`` is true.
    """
    if isinstance(error, OutOfMemoryError):
        return error
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    bound = f", under a limit of {limit / 1e6:.0f} MB" if limit != resource.RLIM_INFINITY else ""
    reason = shortened(f"{type(error).__name__}: {error}", limit=90)
    return OutOfMemoryError(
        f"this step must have more memory, got none{bound} ({reason}); lower "
        "system.tokens_per_batch or training.batch_size, end other programs, or raise 'ulimit -v'"
    )
