"""All randomness comes from one root seed and the name of what is being drawn.

A key is SHA-256 of (root seed, purpose, iteration, prompt id, path in the tree, ...). It never
depends on Python's ``hash``, on the state of a global generator or on the batch a sample happens
to share, so the same parameters give the same rollouts at any batch size, and a resumed run
equals an uninterrupted one.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

Part = int | str | Sequence[int]


def derive_key(seed: int, *parts: Part) -> bytes:
    """16 bytes that name one draw; different parts give independent keys."""
    text = "\x1f".join([str(seed), *(_spell(part) for part in parts)])
    return hashlib.sha256(text.encode()).digest()[:16]


def derive_seed(seed: int, *parts: Part) -> int:
    """A 63-bit seed for a library's own generator."""
    return int.from_bytes(derive_key(seed, *parts)[:8], "big") >> 1


def uniforms(keys: Sequence[bytes], count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), shape [len(keys), count]; a row depends on its own key alone.

    The generator is Philox (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3").
    """
    rows = [generator(key).random(count) for key in keys]
    return np.stack(rows) if rows else np.empty((0, count))


def generator(key: bytes) -> np.random.Generator:
    """Numpy's generator for one key."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Runs the body with torch's global generators seeded, then restores their states."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _spell(part: Part) -> str:
    if isinstance(part, int | str):
        return f"{type(part).__name__}:{part}"
    return "path:" + ".".join(str(step) for step in part)
