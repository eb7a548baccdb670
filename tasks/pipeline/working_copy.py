"""DVC in a folder that no git repository holds, such as an unpacked archive."""

from pathlib import Path

from astra_core.files import write_text

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
