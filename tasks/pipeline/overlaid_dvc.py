"""Makes DVC read params.yaml with the values for this run laid over it.

DVC compares the file with ``dvc.lock`` and writes the file's values there. It has no way to use
other values without a change to the file. So here, in our own processes only, the function by which
it loads a file of parameters is replaced by one that lays the overrides over params.yaml.
"""

from pathlib import Path
from typing import Any

from tasks.params.overlay import overlaid
from tasks.params.schema import PARAMS_FILE


def show_overrides() -> None:
    """Makes DVC use the overrides in this process; a second call changes nothing."""
    from dvc.dependency import param
    from dvc.utils.serialize import load_path

    def load(path: str, fs: Any, **options: Any) -> Any:
        found = load_path(path, fs, **options)
        is_ours = Path(path).resolve() == PARAMS_FILE.resolve()
        return overlaid(found) if is_ours and isinstance(found, dict) else found

    vars(param)["load_path"] = load
