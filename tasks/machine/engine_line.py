"""The engine's plan as ``astra doctor`` shows it: the routes that a training would take here."""

from contextlib import chdir
from pathlib import Path

from astra_core.errors import AstraError

BASE = Path("models/base")
MAX_LOADED_GB = 2.0
"""Largest weights to load: more would keep the doctor waiting, and may not fit beside a run."""


def engine_line(root: Path) -> str:
    """The plan for training the project's attacker, or without models what the machine offers.

    Args:
        root: The project's folder.
    """
    from astra_core.engine.machine import Machine

    try:
        with chdir(root):
            line = _training_line()
    except AstraError:
        # The check and the stages report what is wrong with parameters or models.
        line = None
    return line or Machine.here().describe()


def _training_line() -> str | None:
    """The plan's line for training; None where the models are missing or too large."""
    from astra_core.assembly import ModelFolders, load_system
    from astra_core.training.distribution.distributed import World
    from astra_core.training.resume.policy import as_begun
    from astra_core.training.update import learning_plan
    from tasks.params.schema import read_params
    from tasks.records.models import read_model_paths

    paths = read_model_paths(BASE)
    sizes = [
        file.stat().st_size for own in set(paths.values()) for file in own.glob("*.safetensors")
    ]
    if sum(sizes) > MAX_LOADED_GB * 1e9:
        return None
    params = read_params()
    folders = ModelFolders.of(paths)
    system = load_system(params.system, folders, machine=params.machine, is_trained=True)
    training = as_begun(params.training, system.attacker.model, store=None, world=World())
    return str(learning_plan(system.plan, training))
