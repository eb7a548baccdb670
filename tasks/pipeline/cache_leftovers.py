"""Results in DVC's cache that nothing needs any more, for ``astra gc``.

Unlike ``dvc gc``, which knows locks and commits, this knows the registry too. A result is needed if
a lock file or a ``.dvc`` file names it, here, in the workspace of a sweep or in any commit of any
branch, tag or experiment; if the caller names it; or if it was made recently.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.errors.exception_text import excerpt
from tasks.pipeline.workspace import has_git

CACHE = Path(".dvc/cache")
_OBJECTS = Path("files/md5")
_RUNS = Path("runs")
"""DVC's run cache: which outputs a stage made from which inputs."""
_DIGEST = re.compile(r"\b[0-9a-f]{32}(?:\.dir)?\b")
_FOLDER = ".dir"
_EXPERIMENTS = Path(".dvc/tmp/exps")
# They have thousands of files, but no lock file of this project.
_SKIPPED = {".dvc", ".git", ".prefect", ".venv", "mlruns", "node_modules", "runs"}
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class CacheLeftovers:
    """What can be removed from the cache.

    Attributes:
        objects: Files and lists of folders, the lists first: a list without its files is damage.
        kept_for: Why the cache is left alone; empty where it is not.
    """

    objects: tuple[Path, ...] = ()
    entries: tuple[Path, ...] = ()
    num_bytes: int = 0
    kept_for: str = ""

    def line(self) -> str:
        """For a person."""
        if self.kept_for:
            return f"{CACHE.as_posix():<24}is left alone: {self.kept_for}"
        what = f"{len(self.objects)} results that no lock, commit or version needs"
        return f"{CACHE.as_posix():<24}{self.num_bytes / 2**20:9.1f} MiB, {what}"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "num_results": len(self.objects),
            "num_bytes": self.num_bytes,
            "kept_for": self.kept_for,
        }

    def remove(self) -> None:
        """Removes them; after a kill, the next call finds the rest."""
        for path in (*self.entries, *self.objects):
            path.unlink(missing_ok=True)


def cache_leftovers(needed: Iterable[str] = (), *, min_days: float) -> CacheLeftovers:
    """What can be removed from the working folder's cache; removes nothing.

    Raises DataError if git cannot tell what earlier commits need.
    """
    if not CACHE.is_dir():
        return CacheLeftovers()
    reason = _reason_to_keep()
    if reason:
        return CacheLeftovers(kept_for=reason)
    since = time.time() - min_days * _DAY_S
    objects = {(path.parent.name + path.name): path for path in _files(CACHE / _OBJECTS)}
    entries = list(_files(CACHE / _RUNS))
    recent = {path for path in (*objects.values(), *entries) if path.stat().st_mtime > since}
    wanted = set(needed) | _named_here() | _named_in_git()
    wanted |= {name for name, path in objects.items() if path in recent}
    for path in entries:
        if path in recent:
            wanted |= _digests(path.read_bytes())
    wanted |= {member for name in wanted for member in _members(objects.get(name))}
    free = {name: path for name, path in objects.items() if name not in wanted}
    # DVC does not restore a stage if one of its results is missing, so the entry is useless.
    dead = [path for path in entries if path not in recent and not _outs(path).isdisjoint(free)]
    gone = (*sorted(free.values(), key=_is_file), *dead)
    return CacheLeftovers(
        objects=gone[: len(free)],
        entries=tuple(dead),
        num_bytes=sum(path.stat().st_size for path in gone),
    )


def _reason_to_keep() -> str:
    """Why the cache may hold what others need; empty for a cache of this project alone."""
    from dvc.repo import Repo

    with Repo(".") as repo:
        place = Path(repo.cache.local.path)
    if place.resolve() != (CACHE / _OBJECTS).resolve():
        return f"cache.dir names {place}, which other projects may use"
    return ""


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _is_file(path: Path) -> bool:
    return path.suffix != _FOLDER


def _digests(text: bytes) -> set[str]:
    return set(_DIGEST.findall(text.decode("utf-8", "replace")))


def _members(listed: Path | None) -> Iterator[str]:
    """The digests in the list of a folder; none if the file is no list."""
    if listed is None or _is_file(listed):
        return
    try:
        entries = json.loads(listed.read_text(encoding="utf-8"))
    except ValueError:
        return
    for entry in entries:
        yield str(entry["md5"])


def _outs(entry: Path) -> set[str]:
    """The digests after ``outs:`` in an entry of the run cache."""
    _, _, text = entry.read_bytes().partition(b"outs:")
    return _digests(text)


def _named_here() -> set[str]:
    found: set[str] = set()
    for root in (Path(), _EXPERIMENTS):
        for folder, inner, files in os.walk(root):
            inner[:] = [name for name in inner if name not in _SKIPPED]
            for name in files:
                if name == "dvc.lock" or name.endswith(".dvc"):
                    found |= _digests(Path(folder, name).read_bytes())
    return found


def _named_in_git() -> set[str]:
    """The digests that the lock files of all commits name; none without git."""
    if not has_git(Path()):
        return set()
    asked = ("log", "--all", "-m", "--full-history", "--format=", "--raw", "--no-abbrev", "--")
    changes = _git(*asked, "dvc.lock", "*.dvc").decode("utf-8", "replace")
    # Such as ":100644 100644 OLD NEW M<tab>dvc.lock".
    blobs = {name for line in changes.splitlines() for name in line.split("\t")[0].split()[2:4]}
    written = sorted(name for name in blobs if name.strip("0"))
    if not written:
        return set()
    return _digests(_git("cat-file", "--batch", given="\n".join(written).encode()))


def _git(*arguments: str, given: bytes = b"") -> bytes:
    try:
        return subprocess.run(  # noqa: S603 - our own arguments
            ["git", *arguments],  # noqa: S607 - the user's git
            input=given,
            capture_output=True,
            check=True,
        ).stdout
    except OSError as error:
        problem = str(error)
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode("utf-8", "replace")
    msg = (
        f"git must tell which results earlier commits need, got {excerpt(problem)}; "
        "nothing was removed: see 'git status'"
    )
    raise DataError(msg)
