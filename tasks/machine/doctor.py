"""Problems of this machine that would stop a run, each with the command that fixes it."""

import importlib.metadata
import importlib.util
import re
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import AstraError
from astra_core.files import write_text
from astra_core.paths import closed_above
from tasks.pipeline.failures import FOLDERS
from tasks.pipeline.order import SCRIPT
from tasks.pipeline.reproduction import AtWorkError, changes
from tasks.tracking.database.store_check import check_store, has_store
from tasks.tracking.registry.registered import lost_versions

LOCK_FILE = Path("requirements.lock")
TORCH_LOCK = Path("requirements-torch.lock")
MIN_FREE_GB = 2.0  # the built-in pipeline with its caches takes less than one
# A project of `astra init` has no Makefile.
INSTALL = (
    "pip install --no-deps --require-hashes -r requirements.lock; "
    "pip install -r requirements-torch.lock -r requirements.txt"
)
PYTHONS = ("3.11", "3.12", "3.13")
DVC_FILE = Path(".dvc/config")
# What it says where git tracks it.
DVC_CONFIG = """\
[core]
    analytics = false
    check_update = false
    autostage = false
"""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was checked; ``fix`` is what ``--fix`` does about it, if it can."""

    subject: str
    ok: bool
    problem: str = ""
    advice: str = ""
    fix: Callable[[], None] | None = None

    def line(self) -> str:
        """The finding as a person reads it."""
        if self.ok:
            return f"ok       {self.subject}"
        return f"problem  {self.subject}: {self.problem}; fix it with: {self.advice}"

    def record(self, fixed: Iterable[str] = ()) -> dict[str, Any]:
        """The same as JSON; ``fixed`` names the subjects that ``--fix`` has dealt with."""
        told = {"subject": self.subject, "ok": self.ok, "fixed": self.subject in fixed}
        return told if self.ok else {**told, "problem": self.problem, "advice": self.advice}


def diagnose() -> list[CheckResult]:
    """What was checked on this machine, with and without problems; nothing is changed."""
    return [
        _python(),
        *_packages(),
        _torch(),
        *_engine(),
        _git(),
        _dvc(),
        _store(),
        *_versions(),
        *_writable(),
        _disk(),
        _port(),
    ]


def fix_all(findings: Iterable[CheckResult]) -> list[str]:
    """The subjects of the problems that were fixed."""
    fixed = []
    for finding in findings:
        if not finding.ok and finding.fix is not None:
            with suppress(OSError):  # the second check shows what is left
                finding.fix()
                fixed.append(finding.subject)
    return fixed


def _install() -> str:
    """The command that installs what the project needs."""
    return INSTALL if SCRIPT.is_file() else "make setup"


def _python() -> CheckResult:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return CheckResult(
        f"Python {version}",
        ok=version in PYTHONS,
        problem=f"must be {', '.join(PYTHONS)}, got {version}",
        advice=f"python3.11 -m venv .venv; {INSTALL}"
        if SCRIPT.is_file()
        else "make setup PYTHON=python3.11",
    )


def _packages() -> Iterator[CheckResult]:
    """One finding if all packages of the lock are installed, else one for each that is not."""
    if not LOCK_FILE.is_file():
        advice = f"git restore {LOCK_FILE}"
        yield CheckResult(str(LOCK_FILE), ok=False, problem="must exist, got none", advice=advice)
        return
    pins = _pins(LOCK_FILE) | _pins(TORCH_LOCK)
    wrong = {
        name: got
        for name, want in pins.items()
        if (got := _installed_version(name)) != want.partition("+")[0]
    }
    for name, got in wrong.items():
        problem = f"must be {pins[name]}, got {got or 'none'}"
        yield CheckResult(name, ok=False, problem=problem, advice=_install())
    if not wrong:
        yield CheckResult(f"{len(pins)} packages as in {LOCK_FILE}", ok=True)


def _pins(lock: Path) -> dict[str, str]:
    """The version of each package of a lock that this machine should have; none without the file.

    A line of the lock may be for some machines only; digests are on lines of their own.
    """
    from packaging.markers import Marker

    if not lock.is_file():
        return {}
    line = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: *; *([^\\\n]+))?", re.MULTILINE)
    found = line.findall(lock.read_text("utf-8"))
    return {name: pin for name, pin, marker in found if not marker or Marker(marker).evaluate()}


def _installed_version(name: str) -> str | None:
    """The installed version, without the local part that names a build such as +cpu."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> CheckResult:
    """Torch is imported, because a build for another machine installs and fails only at import."""
    try:
        import torch
    except (ImportError, OSError) as error:
        problem = f"must be importable, got {error}"
        return CheckResult("torch", ok=False, problem=problem, advice=_install())
    from astra_core.engine.processor import processor_class

    device = "CUDA" if torch.cuda.is_available() else f"CPU ({processor_class()})"
    return CheckResult(f"torch {torch.__version__} on {device}", ok=True)


def _engine() -> Iterator[CheckResult]:
    """What this machine computes with; nothing without torch, whose absence is a finding itself."""
    if importlib.util.find_spec("torch") is not None:
        from astra_core.engine.machine import Machine

        yield CheckResult(f"engine: {Machine.here().describe()}", ok=True)


def _git() -> CheckResult:
    found = shutil.which("git") is not None
    advice = "install git, for example apt-get install git"
    return CheckResult("git", ok=found, problem="must be on the PATH, got none", advice=advice)


def _dvc() -> CheckResult:
    """DVC is asked for its status: a folder can have a configuration that DVC cannot read."""
    subject, advice = "DVC repository", "git restore .dvc, or dvc init --no-scm"
    if not DVC_FILE.is_file():
        problem = f"must have {DVC_FILE}, got none"
        return CheckResult(subject, ok=False, problem=problem, advice=advice, fix=_restore_dvc)
    try:
        changes()
    except AtWorkError:
        return CheckResult(subject, ok=True)
    except AstraError as error:
        return CheckResult(subject, ok=False, problem=str(error), advice="what the problem names")
    except OSError as error:
        problem = f"must be open to this user, got {error.strerror} at {error.filename}"
        return CheckResult(subject, ok=False, problem=problem, advice="make the folder writable")
    return CheckResult(subject, ok=True)


def _restore_dvc() -> None:
    """Writes the configuration that the project comes with, by which DVC finds its cache again."""
    write_text(DVC_CONFIG, DVC_FILE, is_shared=True)


def _versions() -> Iterator[CheckResult]:
    """A finding for each version with an alias whose files are not where the store says."""
    try:
        check_store()
        lost = lost_versions() if has_store() else []
    except AstraError:
        return  # the store has its own finding
    for name, version, alias in lost:
        yield CheckResult(
            f"files of {name} version {version} ({alias})",
            ok=False,
            problem="must be where the store says, got none there",
            advice="restore mlruns from a copy; 'astra run' registers the last run's again",
        )


def _store() -> CheckResult:
    try:
        check_store()
    except AstraError as error:
        advice = "the file or address that the problem names"
        return CheckResult("MLflow's store", ok=False, problem=str(error), advice=advice)
    return CheckResult("MLflow's store" if has_store() else "MLflow's store, not made yet", ok=True)


def _writable() -> Iterator[CheckResult]:
    for name in FOLDERS:
        closed = closed_above(name)
        problem = "must be a folder that can be written to, got one that cannot"
        advice = f"chmod u+rwx {closed}"
        fix = _open(closed) if closed is not None and closed.is_dir() else None
        yield CheckResult(
            f"folder {name}", ok=closed is None, problem=problem, advice=advice, fix=fix
        )


def _open(folder: Path) -> Callable[[], None]:
    return lambda: folder.chmod(folder.stat().st_mode | stat.S_IRWXU)


def _disk() -> CheckResult:
    free = shutil.disk_usage(Path()).free / 1e9
    return CheckResult(
        f"{MIN_FREE_GB:g} GB of free disk",
        ok=free >= MIN_FREE_GB,
        problem=f"must have {MIN_FREE_GB:g} GB, got {free:.1f} GB",
        advice="dvc gc -w, which drops what the working folder does not use",
    )


def _port() -> CheckResult:
    """Prefect's and MLflow's servers listen on a local port."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return CheckResult("a local port", ok=True)
    except OSError as error:
        problem = f"127.0.0.1 must accept a server, got {error}"
        return CheckResult("a local port", ok=False, problem=problem, advice="ip link set lo up")
