"""Where a result came from: commit, package versions, DVC's digests; nothing here raises."""

import getpass
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

UNKNOWN = "unknown"
_PACKAGES = (
    "astra-red-team",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "numpy",
    "pandas",
    "mlflow",
    "dvc",
    "prefect",
    "great-expectations",
)
# DVC's variables about the stage; its settings (DVC_NO_ANALYTICS ...) say nothing about a run, nor
# does DVC_ROOT, a folder of this machine.
_DVC_VARIABLES = ("DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV")
_GIT_TIMEOUT_S = 10
# Code and settings, which explain a run.
_CODE = ("*.py", "*.yaml", "*.yml", "*.toml", "*.lock", "*.sh", "Makefile", "requirements.txt")


def provenance(folder: Path = Path()) -> dict[str, str]:
    """Tags that say which code, packages and DVC stage a run belongs to."""
    changes = git_output(folder, "status", "--porcelain", "--untracked-files=no")
    commit = git_output(folder, "rev-parse", "HEAD")
    tags = {
        "git.commit": commit or UNKNOWN,
        "mlflow.user": _user(),
        "mlflow.source.name": _source(),
        "mlflow.source.type": "LOCAL",
        "git.dirty": UNKNOWN if changes is None else str(bool(changes)).lower(),
    }
    if commit:
        tags["mlflow.source.git.commit"] = commit  # The name that MLflow's pages show.
    for package in _PACKAGES:
        tags[f"version.{package}"] = _installed_version(package)
    for name in _DVC_VARIABLES:
        if value := os.environ.get(name):
            tags[name.lower().replace("_", ".", 1)] = value
    return tags


def is_tracked(file: Path) -> bool:
    """Whether git keeps a file."""
    return bool(git_output(file.parent, "ls-files", "--", f":(literal){file.name}"))


def dvc_digests(lock: Path = Path("dvc.lock")) -> dict[str, str]:
    """MD5 by path of each output in DVC's lock file; empty without a readable one."""
    import yaml

    try:
        record = yaml.safe_load(lock.read_text(encoding="utf-8"))
        stages = record["stages"].values()
        outputs = [output for stage in stages for output in stage.get("outs", [])]
        return {output["path"]: output["md5"] for output in outputs if "md5" in output}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return {}


def requirements(*packages: str) -> list[str]:
    """``package==version`` for each installed package, without local labels such as ``+cpu``."""
    return [f"{package}=={_installed_version(package).partition('+')[0]}" for package in packages]


def code_changes(folder: Path = Path(), *, limit: int = 100_000) -> str:
    """How code and settings differ from the commit, as a patch; empty if they do not.

    For other files, which may hold prompts or replies, it has only names and counts of lines.

    ``limit``: most characters; a longer patch is cut and ends with a line that says so.
    """
    told = git_output(folder, "diff", "HEAD", "--stat") or ""
    if not told:
        return ""
    patch = git_output(folder, "diff", "HEAD", "--no-color", "--", *_CODE) or ""
    text = f"{told}\n\n{patch}\n"
    return text if len(text) <= limit else f"{text[:limit]}\n... cut off at {limit} characters\n"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return UNKNOWN


def _source() -> str:
    """The stage that DVC runs, or else the program."""
    stage = os.environ.get("DVC_STAGE")
    return f"python -m tasks {stage}" if stage else Path(sys.argv[0]).name


@cache
def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN


def is_uncommitted(path: Path) -> bool:
    """True if the file is in a git repository of which no commit has it as it is now."""
    return bool(git_output(path.absolute().parent, "status", "--porcelain", "--", path.name))


def git_output(folder: Path, *arguments: str) -> str | None:
    """The output of git; None without git, a repository or a commit."""
    command = ["git", "-C", str(folder.absolute()), *arguments]
    try:
        answer = subprocess.run(  # noqa: S603 - fixed words and a folder, no shell
            command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
