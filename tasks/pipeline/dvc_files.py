"""Files of DVC that a kill cut short, set aside so that the same command can continue.

DVC writes ``dvc.lock`` and its list of locks on files in place. Without the first it restores every
stage from its cache, and without the second nothing is locked: so it can do without either.
"""

import json
from pathlib import Path

from tasks.machine.console import say

LOCK_FILE = Path("dvc.lock")
HOLDERS = Path(".dvc/tmp/rwlock")
CUT = Path(".astra/cut")


def set_aside_cut(error: BaseException) -> bool:
    """Whether DVC failed because of a file that was cut short, which is now in ``.astra/cut``."""
    from dvc.rwlock import RWLockFileCorruptedError, RWLockFileFormatError
    from dvc.utils.strictyaml import YAMLSyntaxError, YAMLValidationError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RWLockFileCorruptedError | RWLockFileFormatError):
            return _set_aside_holders()
        if isinstance(cause, YAMLSyntaxError | YAMLValidationError):
            return _set_aside_lock_file()
        cause = cause.__cause__
    return False


def _set_aside_holders() -> bool:
    from dvc.lock import make_lock

    # DVC's own guard: this waits for a process that is writing now, after which the file is whole.
    guard = make_lock(f"{HOLDERS}.lock", tmp_dir=str(HOLDERS.parent), hardlink_lock=False)
    with guard:
        try:
            json.loads(HOLDERS.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return True
        except ValueError:
            return _set_aside(HOLDERS)
    return True


def _set_aside_lock_file() -> bool:
    """Sets ``dvc.lock`` aside, unless it holds a merge conflict, which a person must resolve."""
    from dvc.repo import Repo

    with Repo(".") as repo, repo.lock:
        if not LOCK_FILE.is_file() or "<<<<<<<" in LOCK_FILE.read_text(encoding="utf-8"):
            return False
        if _is_whole(LOCK_FILE):
            return False
        return _set_aside(LOCK_FILE)


def _is_whole(path: Path) -> bool:
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from ruamel.yaml import YAML, YAMLError
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(YAML(typ="safe").load(path.read_text(encoding="utf-8")) or {})
    except (YAMLError, Invalid):
        return False
    return True


def _set_aside(path: Path) -> bool:
    CUT.mkdir(parents=True, exist_ok=True)
    path.replace(CUT / path.name)
    say(f"{path.name:<13}was cut short by a kill; DVC writes it again")
    return True
