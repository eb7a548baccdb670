"""Files of DVC that were damaged, set aside so that the same command can continue.

DVC writes ``dvc.lock`` and its list of locks on files in place. Without the first it restores every
stage from its cache, and without the second nothing is locked: so it can do without either.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.machine.console import complain, say

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
        if not LOCK_FILE.is_file():
            return False
        text = LOCK_FILE.read_text(encoding="utf-8")
        if "<<<<<<<" in text or _is_whole(text):
            return False
        return _set_aside(LOCK_FILE)


def _is_whole(text: str) -> bool:
    """Whether DVC can read this text of its lock file."""
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from ruamel.yaml import YAML, YAMLError
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(YAML(typ="safe").load(text) or {})
    except (YAMLError, Invalid):
        return False
    return True


def _set_aside(path: Path) -> bool:
    CUT.mkdir(parents=True, exist_ok=True)
    path.replace(CUT / path.name)
    say(f"{path.name:<13}was cut short by a kill; DVC writes it again")
    return True


def remove_damaged(stage: str) -> bool:
    """Whether an output of a stage that DVC restored is not what it was; it and its copy are gone.

    DVC takes the content of a copy that nobody may write to on trust.
    """
    from dvc.repo import Repo

    with Repo(".") as repo:
        outs = [out for out in repo.stage.load_one(name=stage).outs if out.use_cache]
        pairs = [(file, md5, out) for out in outs for file, md5 in _files_of(out)]
        bad = [(file, md5, out) for file, md5, out in pairs if not _has_content(file, md5)]
        for file, md5, out in bad:
            complain(f"{stage}: DVC's copy of {file} is damaged; it is made again")
            for path in (file, Path(out.cache.oid_to_path(md5))):
                path.unlink(missing_ok=True)
    return bool(bad)


def _files_of(out: Any) -> Iterator[tuple[Path, str]]:
    """The files of an output, with the MD5 of what they held."""
    found, place = out.get_obj(), Path(out.fs_path).relative_to(Path.cwd())
    if out.hash_info.isdir:
        yield from ((place.joinpath(*key), md5.value) for key, _, md5 in found)
    else:
        yield place, out.hash_info.value


def _has_content(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == md5
