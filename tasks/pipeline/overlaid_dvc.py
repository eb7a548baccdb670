"""DVC shown params.yaml with the values that hold for this run alone.

DVC compares the file with ``dvc.lock`` and writes the file's values there. It offers no way to give
it others without a change to the file, so here, in our own processes alone, the function with which
it loads a file of parameters is replaced by one that lays the overrides over params.yaml.
"""

from pathlib import Path
from typing import Any

from tasks.params.overlay import overlaid
from tasks.params.schema import PARAMS_FILE


def show_overrides() -> None:
    """Makes DVC, in this process, see the overrides; twice does no more than once."""
    from dvc.dependency import param
    from dvc.utils.serialize import load_path

    def load(path: str, fs: Any, **options: Any) -> Any:
        found = load_path(path, fs, **options)
        is_ours = Path(path).resolve() == PARAMS_FILE.resolve()
        return overlaid(found) if is_ours and isinstance(found, dict) else found

    vars(param)["load_path"] = load
