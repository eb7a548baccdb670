"""What the site has beside docs/: README, the API, and files that pages link to.

mkdocs calls the two ``on_`` functions. Pages link as on a code host, relative to the repository;
here each link is made one of the site.
"""

import re
from os.path import relpath
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Pages of the repository that lie elsewhere than in docs/.
OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "plugins/README.md")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".mjs": "js"}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
# A list or a table that follows its sentence at once, which Python-Markdown wants set apart.
_TIGHT = re.compile(
    r"^((?!\s*(?:[-*|]|\d+\.) ?)(?! {2})\S.*)\n(?=(?:[-*]|1\.) \S|\|)", re.MULTILINE
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages: those of docs/ and those made here."""
    made = {place_of(name): (ROOT / name).read_text("utf-8") for name in OTHERS}
    written = [*(ROOT / "docs").rglob("*.md"), *map(ROOT.joinpath, OTHERS)]
    for name in sorted({name for page in written for name in _linked(page)}):
        made.setdefault(place_of(name), _shown(ROOT / name))
    for name, text in {**made, **api_pages()}.items():
        files.append(File.generated(config, name, content=text))
    for picture in sorted((ROOT / "docs").rglob("*.png")):
        name = picture.relative_to(ROOT / "docs").as_posix()
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page with links of the site, and lists and tables that are told from sentences."""
    place = page.file.src_uri
    parts = _FENCE.split(markdown)
    parts[::2] = [_TIGHT.sub(r"\1\n\n", relinked(part, place)) for part in parts[::2]]
    return "".join(parts)


def place_of(name: str) -> str:
    """Where a file of the repository is on the site."""
    if name == "README.md":
        return "index.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if name.endswith(".md"):
        return name
    return f"source/{name}.md"


def origin_of(place: str) -> str:
    """Which file of the repository a page of the site shows."""
    if place == "index.md":
        return "README.md"
    is_elsewhere = place in OTHERS or place.startswith(("source/", "api/"))
    return place if is_elsewhere else f"docs/{place}"


def relinked(text: str, place: str) -> str:
    """The text of the page at ``place`` with each relative link as the site needs it."""

    def new(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        if not path or "://" in path or place.startswith("api/"):
            return found[0]
        target = place_of(_resolved(path, origin_of(place)))
        return f"]({relpath(target, PurePosixPath(place).parent)}{mark}{anchor})"

    return _LINK.sub(new, text)


def api_pages() -> dict[str, str]:
    """A page per package of core and parts, from the docstrings of its modules."""
    pages, tops = dict[str, str](), (ROOT / "astra_core", ROOT / "astra_parts")
    for folder in sorted({path.parent for top in tops for path in top.rglob("*.py")}):
        names = [_module(path) for path in sorted(folder.glob("*.py"))]
        shown = [name for name in names if not name.rpartition(".")[2].startswith("_")]
        package = ".".join(folder.relative_to(ROOT).parts)
        own = "    options: {members: false, heading_level: 1}"
        told = [f"::: {package}\n{own}", *(f"::: {name}" for name in shown if name != package)]
        pages[f"api/{package}.md"] = "\n\n".join(told) + "\n"
    lines = [f"- [`{PurePosixPath(name).stem}`]({PurePosixPath(name).name})" for name in pages]
    begin = "# API\n\nThe packages of core and parts, from their docstrings.\n\n"
    pages["api/index.md"] = begin + "\n".join(lines) + "\n"
    return pages


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _linked(page: Path) -> list[str]:
    """The files that a page links to and that are no pages themselves."""
    name = page.relative_to(ROOT).as_posix()
    text = "".join(_FENCE.split(page.read_text("utf-8"))[::2])
    targets = [target.partition("#")[0] for target in _LINK.findall(text) if "://" not in target]
    found = {_resolved(target, name) for target in targets if target}
    return [
        own
        for own in sorted(found)
        if (ROOT / own).is_file() and Path(own).suffix not in {".md", ".ipynb", ".png", ".svg"}
    ]


def _resolved(path: str, origin: str) -> str:
    """A path as written in a page, from the root of the repository."""
    return relpath(ROOT / PurePosixPath(origin).parent / path, ROOT)


def _shown(path: Path) -> str:
    language = LANGUAGES.get(path.suffix, "text")
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n````{language}\n{path.read_text('utf-8').rstrip()}\n````\n"
