"""The site of the pages builds without a broken link, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest
from pages import ROOT

pytestmark = pytest.mark.real

# What a browser fetches on its own: not the links that a reader follows.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preconnect|preload))[^>]*\bhref=["']?([^"'\s>]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = ("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder))
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return folder


def test_no_page_loads_an_outside_asset(site):
    loaded = {
        place
        for page in site.rglob("*.html")
        for found in LOADED.findall(page.read_text("utf-8"))
        for place in found
        if place
    }
    styles = "".join(sheet.read_text("utf-8") for sheet in site.rglob("*.css"))

    assert any(place.endswith(".css") for place in loaded)
    assert [] == sorted(place for place in loaded if re.match(r"(https?:)?//", place))
    assert [] == re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", styles)


def test_the_site_has_the_api_and_every_page(site):
    trainer = (site / "api/astra_core.training.html").read_text("utf-8")
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    gone = [
        path.as_posix()
        for path in pages
        if path.name != "README.md" and not (site / path.with_suffix(".html")).exists()
    ]

    assert "astra_core.training.trainer.Trainer" in trainer
    assert [] == gone


def test_the_search_has_what_it_needs_where_pages_are_opened_as_files(site):
    page = (site / "studies/performance.html").read_text("utf-8")

    assert '<script src="../assets/iframe-worker.js"' in page
    assert "operations.html" in (site / "search/search_index.js").read_text("utf-8")
    assert "window.Worker" in (site / "assets/iframe-worker.js").read_text("utf-8")
