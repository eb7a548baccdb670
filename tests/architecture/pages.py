"""The documentation as the tests of it read it: pages, blocks, prose and commands."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "plugins/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
SHELL = ("bash", "sh", "console")
PROGRAMS = (
    "accelerate ",
    "astra ",
    "dvc ",
    "make ",
    "mlflow ",
    "prefect ",
    "python -m ",
    "torchrun ",
)


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def codes(page: Path) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def fenced_commands() -> list[str]:
    """Every command in a block for a shell, without comments."""
    lines = [
        line
        for page in PAGES
        for block in blocks(page, *SHELL)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    commands = [shlex.join(shlex.split(line.removeprefix("$ "), comments=True)) for line in lines]
    return sorted({command for command in commands if command})


def commands() -> list[str]:
    """Every command of the pages, in a block or in a sentence."""
    inline = [
        re.sub(r"\b(STAGE|NAME)\b", "training", code)
        for page in PAGES
        for code in codes(page)
        if code.startswith(PROGRAMS) and "..." not in code
    ]
    return sorted({*fenced_commands(), *inline})


def known_variables() -> set[str]:
    """Every word in the code that could be a variable of the environment."""
    code = "\n".join(
        file.read_text("utf-8")
        for folder in ("tasks", "flows", "astra_core", "astra_parts")
        for file in (ROOT / folder).rglob("*.*")
        if file.suffix in {".py", ".sh"}
    )
    return set(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", code))
