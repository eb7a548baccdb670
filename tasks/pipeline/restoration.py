"""Results of an earlier run put back from DVC's cache or its remote."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from astra_core.errors import DataError
from astra_core.files import write_text
from tasks.machine.privacy import keep_private

BEFORE = Path(".astra/before")
"""Where the files that were replaced last are kept."""


def put_back(files: Mapping[Path, str]) -> None:
    """Writes params.yaml and dvc.lock, and checks out what they name; after an error all stays.

    Args:
        files: What the two held.

    Raises:
        DataError: A run is at work here, DVC lacks a result, or has no copy of what is here.
    """
    # Before DVC is imported: it reads the umask once and gives its files that mode.
    keep_private()
    from dvc.exceptions import CheckoutError, DownloadError, DvcException

    from tasks.pipeline.reproduction import blocker, hush_dvc, lock_error
    from tasks.pipeline.working_copy import prepare_dvc

    hush_dvc()
    prepare_dvc()
    was = {file: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    try:
        if was != files:
            _write({BEFORE / file: text for file, text in was.items()})
            _write(files)
        _check_out()
    except DvcException as error:
        _write(was)
        busy = lock_error(error)
        if busy is not None:
            msg = f"no run may be at work here, got {blocker(busy)}; try again when it has ended"
        elif isinstance(error, CheckoutError | DownloadError):
            _check_out(is_partial=True)
            told = " ".join(str(error).split())
            msg = (
                f"DVC's cache or remote must have every result, got: {told}; where they were made, "
                "'dvc push' sends them to a remote"
            )
        else:
            found = str(error).partition("\n")[2].split() or str(error).split()
            msg = (
                f"DVC must have a copy of what it replaces, got changed {', '.join(found)}; "
                "'dvc commit' keeps them, or remove them"
            )
        raise DataError(msg) from error


def _check_out(*, is_partial: bool = False) -> None:
    from dvc.config import NoRemoteError
    from dvc.repo import Repo
    from dvc.rwlock import rwlock

    with Repo(".") as repo:
        outs = [out.fs_path for out in repo.index.outs if out.is_in_repo]
        # A stage that runs holds these, not the repository's own lock.
        with rwlock(repo.tmp_dir, repo.fs, "astra restore", [], outs, False):
            with suppress(NoRemoteError):  # then all must be in the cache
                repo.fetch()
            repo.checkout(allow_missing=is_partial)


def _write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        write_text(text, file)
