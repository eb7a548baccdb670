import shutil
import subprocess
from pathlib import Path

import pytest

from astra_core.errors import DataError
from tasks.report.plots_page import MOST, plots_page

ROOT = Path(__file__).parents[3]
STEPS = Path("reports/training_steps.csv")


@pytest.fixture
def project(dvc_project):
    """A git repository with two revisions of the table, the first under the tag ``old``."""
    shutil.copy(ROOT / "dvc.yaml", dvc_project)
    (dvc_project / ".dvc/config.local").unlink(missing_ok=True)
    STEPS.parent.mkdir()
    for name, loss in (("old", 0.5), ("new", 0.25)):
        STEPS.write_text(f"step,train/loss,train/grad_norm\n1,1.0,2.0\n2,{loss},\n", "utf-8")
        if name == "old":
            git("init", "-q")
            git("add", "--force", str(STEPS))
            git("commit", "-q", "-m", name)
            git("tag", name)
    return dvc_project


def git(*arguments):
    person = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *person, *arguments], check=True, capture_output=True)


@pytest.mark.real
def test_every_plot_that_was_measured_is_on_a_page_that_loads_nothing(project):
    page = plots_page()

    assert 2 == page.count("<figure>")
    for word in ("train/loss", "train/grad_norm"):
        assert word in page
    assert "eval/attack_success_rate" not in page
    shown = page.replace("http://www.w3.org/", "").replace("https://matplotlib.org/", "")
    assert "http:" not in shown
    assert "https:" not in shown
    assert "<script" not in page


@pytest.mark.real
def test_a_revision_is_a_curve_of_its_own(project):
    both = plots_page(["old"])

    assert ">old<" in both
    assert ">old<" not in plots_page()


def test_a_revision_that_is_unknown_is_one_line(project):
    with pytest.raises(DataError, match="nowhere must have the table"):
        plots_page(["nowhere"])
    with pytest.raises(DataError, match=f"at most {MOST - 1} revisions"):
        plots_page([f"r{number}" for number in range(MOST)])


def test_without_a_run_or_a_pipeline_the_line_says_so(project):
    STEPS.unlink()
    with pytest.raises(DataError, match="'astra run' makes it"):
        plots_page()
    Path("dvc.yaml").write_text("stages: {}\n", "utf-8")
    with pytest.raises(DataError, match="make render"):
        plots_page()
