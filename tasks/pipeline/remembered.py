"""DVC's cached files of a folder that it has deleted because its stage runs again."""

from pathlib import Path
from typing import Any

from tasks.tracking.lineage.provenance import dvc_digests


def last_files(folder: Path) -> dict[str, Path]:
    """The files of a stage's output from before the stage began, by their path in it.

    They are in the folder, or in DVC's cache by the digests in ``dvc.lock``: DVC deletes an output
    before its stage runs, and writes the lock only afterwards. They may be read, never written.
    """
    found = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    digest = dvc_digests().get(folder.as_posix())
    return found or (_cached_files(digest) if digest is not None else {})


def _cached_files(digest: str) -> dict[str, Path]:
    """The files of a folder in DVC's cache; none if any of them is missing."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    try:
        with Repo(".") as repo:
            cache: Any = repo.cache.local
            tree = Tree.load(cache, HashInfo("md5", digest))
            found = {
                "/".join(key): Path(cache.oid_to_path(info.value))
                for key, _, info in tree
                if info is not None
            }
    except (DvcException, ObjectFormatError, OSError):
        return {}
    return found if all(path.is_file() for path in found.values()) else {}
