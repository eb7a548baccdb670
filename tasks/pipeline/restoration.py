"""Results of an earlier run put back from DVC's cache or its remote."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from astra_core.errors import DataError
from astra_core.files import record_digest, write_text
from tasks.machine.privacy import keep_private
from tasks.pipeline.dvc_files import LOCK_FILE, set_aside_cut
from tasks.pipeline.reproduction import blocker, hush_dvc, lock_error
from tasks.pipeline.workspace import prepare_dvc

BEFORE = Path(".astra/before")
"""Where files that were replaced are kept, in a folder for each content."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def put_back(files: Mapping[Path, str]) -> Path | None:
    """Writes params.yaml and dvc.lock, and checks out what they name; after an error all stays.

    Returns the folder with the two as they were; None if they were the same.

    Raises DataError if a run is at work here, DVC lacks a result, or has no copy of what is here.
    """
    # Before DVC is imported: it reads the umask once and gives its files that mode.
    keep_private()
    from dvc.exceptions import DvcException

    hush_dvc()
    prepare_dvc()
    was = {file: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    kept = BEFORE / record_digest([[str(file), text] for file, text in was.items()])[:12]
    try:
        with _nobody_at_work():
            if was != files:
                _write({kept / file: text for file, text in was.items()})
            _replace(was, files)
    except (DvcException, ImportError) as error:
        if set_aside_cut(error):
            return put_back(files)
        raise DataError(_problem(error)) from error
    return None if was == files else kept


@contextmanager
def _nobody_at_work() -> Iterator[None]:
    """Holds the outputs, as a stage does that runs; the repository's own lock is free meanwhile."""
    from dvc.repo import Repo
    from dvc.rwlock import rwlock

    with Repo(".") as repo:
        outs = [out.fs_path for out in repo.index.outs if out.is_in_repo]
        with rwlock(repo.tmp_dir, repo.fs, "astra restore", [], outs, False):
            yield


def _replace(was: Mapping[Path, str], files: Mapping[Path, str]) -> None:
    """Writes the files and checks out; whatever goes wrong, the former ones come back."""
    from dvc.exceptions import DvcException

    try:
        _write(files)
        _check_out()
    except BaseException:
        _write(was)
        for file in files.keys() - was.keys():
            file.unlink(missing_ok=True)
        if LOCK_FILE in was:  # without it DVC would take what is here for nobody's
            with suppress(DvcException, ImportError):
                _check_out()
        raise


def _check_out() -> None:
    from dvc.exceptions import CheckoutError, DvcException
    from dvc.repo import Repo

    with Repo(".") as repo:
        # Without a remote, or one that answers, the cache may still have everything.
        with suppress(DvcException):
            repo.fetch()
        known = [out for out in repo.index.outs if out.use_cache and out.hash_info]
        # DVC itself notices when it has removed what was here.
        if missing := [str(out) for out in known if out.changed_cache()]:
            raise CheckoutError(missing, {})
        repo.checkout()


def _problem(error: BaseException) -> str:
    """What went wrong, in a line."""
    from dvc.exceptions import CheckoutError

    busy, told = lock_error(error), _COLOUR.sub("", str(error))
    if busy is not None:
        return f"no run may be at work here, got {blocker(busy)}; try again when it has ended"
    if "unsaved files" in told:
        return (
            f"DVC must have a copy of what it replaces, got changed "
            f"{', '.join(told.splitlines()[1:])}; 'dvc commit' keeps them, or remove them"
        )
    told = " ".join(told.split())
    if isinstance(error, CheckoutError):
        return (
            f"DVC's cache or remote must have every result, got: {told.partition(' Is your ')[0]}; "
            "where it was made, 'astra restore' of the version and then 'dvc push' send them"
        )
    return f"DVC must be able to read the project, got: {told}; see 'astra doctor'"


def _write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        write_text(text, file)
