"""Workspaces: copies of the project's code in which stages run with parameters of their own.

A workspace is the project as a source archive gives it, with no git of its own. It shares the DVC
cache of the project it was copied from, so that a stage that ran in one is restored in another.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.files import write_text
from tasks.params.schema import PARAMS_FILE, Params
from tasks.pipeline.order import PIPELINE_FILE, outside_inputs, render, stages

FOLDERS = ("astra_core", "astra_parts", "flows", "params", "plugins", "tasks")
COPIED = (
    *FOLDERS,
    *("dvc.yaml", "params.yaml", "pyproject.toml", "prefect.yaml", "stage.sh"),
    *("requirements.lock", "requirements-torch.lock"),
    *(".dvcignore", ".gitignore", ".dvc/config"),
)
"""What stages need of the project, beside files named in params.yaml; some may be missing."""
_BULKY = 2**20  # bytes; larger files of params.yaml are linked, where the disk can
_PAID = (Path(".astra/replies"), Path(".astra/draws"))
"""What services answered: shared, so that nothing is paid for twice."""
_SHARED = """\
# A workspace of astra: no git holds it, and its outputs are kept with the project's.
[core]
    no_scm = true
[cache]
    dir = {cache}
"""


def fill_workspace(folder: Path, text: str, params: Params) -> None:
    """Gives a folder the project's code and inputs of today; what stages made there stays.

    Raises ConfigurationError if they name a file by a path that leads out of the project.
    """
    named = (path for stage in stages().values() for path in outside_inputs(stage, params))
    inputs = tuple(dict.fromkeys(named))
    for path in inputs:
        if ".." in path.parts:
            msg = (
                f"a run in a workspace must find its files by absolute paths or in the project, "
                f"got {path}; write where it lies into params.yaml"
            )
            raise ConfigurationError(msg)
    for path in (*map(Path, FOLDERS), *(path for path in inputs if not path.is_absolute())):
        _remove(folder / path)
    folder.mkdir(parents=True, exist_ok=True)
    copy_project(Path(), folder, inputs=inputs)
    write_text(text, folder / PARAMS_FILE, is_shared=True)
    write_text(render(params=params), folder / PIPELINE_FILE, is_shared=True)
    for path in _PAID:
        path.mkdir(parents=True, exist_ok=True)
        (folder / path).parent.mkdir(exist_ok=True)
        if not (folder / path).is_symlink():
            (folder / path).symlink_to(path.resolve(), target_is_directory=True)
    share_cache(Path(), folder)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy_project(root: Path, folder: Path, *, inputs: Iterable[Path] = ()) -> None:
    """Fills a folder with what stages need.

    ``inputs``: files that params.yaml names; those outside of the project are not copied.
    """
    for name in COPIED:
        if (root / name).exists():
            _copy(root / name, folder / name)
    for path in inputs:
        if not path.is_absolute() and ".." not in path.parts and not (folder / path).exists():
            _copy(root / path, folder / path)


def share_cache(root: Path, folder: Path) -> None:
    """Makes the workspace use the project's DVC cache, by a relative path."""
    cache = os.path.relpath(root.resolve() / ".dvc" / "cache", folder.resolve() / ".dvc")
    write_text(_SHARED.format(cache=Path(cache).as_posix()), folder / ".dvc" / "config.local")


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, place, ignore=ignored, copy_function=_copy_or_link)
    else:
        _copy_or_link(source, place)


def _copy_or_link(source: str | Path, place: str | Path) -> None:
    """Copies the file, or links it if it is large: weights are replaced, never written in place."""
    if Path(source).stat().st_size > _BULKY and Path(source).suffix == ".safetensors":
        try:
            os.link(source, place)
        except OSError:  # another disk, or a file system without links
            pass
        else:
            return
    shutil.copy2(source, place)


LOCAL = Path(".dvc/config.local")
# It is written into DVC's file for this machine, beside the configuration that git tracks, so plain
# `dvc` commands obey it as well. By its first line it is recognised and removed once git is there.
WITHOUT_GIT = """\
# Written by astra: no git repository holds this folder. Goes when one does.
[core]
    no_scm = true
"""


def prepare_dvc(folder: Path = Path()) -> None:
    """Makes DVC work in the folder, also without git; tracked files stay as they are.

    A configuration that a person wrote is left alone.
    """
    local = folder / LOCAL
    if not (folder / ".dvc" / "config").is_file():
        return
    if has_git(folder):
        if local.is_file() and local.read_bytes() == WITHOUT_GIT.encode():
            local.unlink()
    elif not local.exists():
        write_text(WITHOUT_GIT, local)


def has_git(folder: Path) -> bool:
    """Whether the folder, or one above it, is the top of a git repository."""
    place = folder.absolute()
    return any((above / ".git").exists() for above in (place, *place.parents))
