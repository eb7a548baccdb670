"""Every script of contracts.md and scaling.md runs as it stands, and one names every contract."""

import runpy

import pytest
from pages import ROOT, blocks

from astra_parts import testing
from astra_parts.testing import tiny_language_model

PAGE = ROOT / "docs" / "contracts.md"
SCRIPTS = blocks(PAGE, "python") + blocks(ROOT / "docs" / "scaling.md", "python")


@pytest.mark.real
@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_a_script_of_the_pages_runs_as_it_stands(number, tmp_path, monkeypatch):
    tiny_language_model(seed=0).save(tmp_path / "my" / "attacker")
    (tmp_path / "script.py").write_text(SCRIPTS[number], "utf-8")
    monkeypatch.chdir(tmp_path)

    runpy.run_path("script.py", run_name="__main__")


def test_the_page_names_every_contract():
    text = PAGE.read_text("utf-8")
    contracts = [name for name in vars(testing) if name.startswith("check_")]

    assert [] == [name for name in contracts if f"`{name}`" not in text]
