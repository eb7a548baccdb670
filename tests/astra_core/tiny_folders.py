"""Tiny models in folders, as a System is loaded from, and torch as it was before one was."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from astra_parts.assembly import ModelFolders
from astra_parts.testing import tiny_language_model


def tiny_folders(folder: Path) -> ModelFolders:
    """An attacker, who is the reference too, and a target, saved in the folder."""
    tiny_language_model(seed=1).save(folder / "attacker")
    tiny_language_model(seed=2).save(folder / "target")
    paths = {role: folder / role for role in ("attacker", "target")}
    return ModelFolders.of({**paths, "reference": folder / "attacker"})


@contextmanager
def torch_as_before() -> Iterator[None]:
    """Undoes what loading a System in the body sets in torch."""
    threads, is_deterministic = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    yield
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(is_deterministic)
