"""DVC in a folder that no git repository holds, such as an unpacked archive."""

from pathlib import Path

from astra_core.files import write_text

LOCAL = Path(".dvc/config.local")
# Beside the configuration that git keeps, in the file that DVC keeps for one machine: plain `dvc`
# commands obey it as well. The remark says whose it is, so that it goes when git comes.
WITHOUT_GIT = """\
# Written by astra: no git repository holds this folder. Goes when one does.
[core]
    no_scm = true
"""


def prepare_dvc(folder: Path = Path()) -> None:
    """Leaves DVC working in the folder, also where there is no git; tracked files stay as they are.

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
