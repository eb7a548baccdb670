"""What a kill leaves of the files that DVC writes in place."""

from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from tasks.pipeline.dvc_files import CUT, HOLDERS, LOCK_FILE
from tasks.pipeline.reproduction import changes, is_current, reproduce

DVC_YAML = """\
stages:
  toy:
    cmd: echo run >> runs && cp source.txt out.txt
    deps: [source.txt]
    outs: [out.txt]
"""


@pytest.fixture
def project(dvc_project):
    """A project in which DVC has run its stage."""
    Path("dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    Path("source.txt").write_text("given", encoding="utf-8")
    assert 0 == reproduce("toy")
    return dvc_project


@pytest.mark.parametrize("length", [0, 12])
def test_a_lock_file_that_was_cut_is_made_again_without_running_anything(project, length, capsys):
    whole = LOCK_FILE.read_text()
    LOCK_FILE.write_text(whole[:length])

    assert not is_current("toy")
    assert 0 == reproduce("toy")
    assert whole == LOCK_FILE.read_text()
    assert "run\n" == Path("runs").read_text()
    assert whole[:length] == (CUT / "dvc.lock").read_text()
    assert "dvc.lock     was cut short by a kill" in capsys.readouterr().out


def test_what_would_run_is_reported_for_a_lock_file_that_was_cut(project):
    LOCK_FILE.write_text("")

    assert ["toy"] == list(changes())


@pytest.mark.parametrize("text", ["", '{"write": {"a'])
def test_holders_that_were_cut_are_forgotten(project, text):
    HOLDERS.write_text(text)

    assert 0 == reproduce("toy", force=True)
    assert text == (CUT / "rwlock").read_text()


def test_a_conflict_of_two_branches_is_left_to_a_person(project):
    text = "<<<<<<< ours\nschema: '2.0'\n=======\n>>>>>>> theirs\n"
    LOCK_FILE.write_text(text)

    with pytest.raises(ConfigurationError, match="DVC must know stage 'toy'"):
        is_current("toy")
    assert text == LOCK_FILE.read_text()


def test_a_mistake_in_dvc_yaml_is_no_cut(project):
    Path("dvc.yaml").write_text("stages: [", encoding="utf-8")
    whole = LOCK_FILE.read_text()

    with pytest.raises(ConfigurationError):
        is_current("toy")
    assert whole == LOCK_FILE.read_text()
