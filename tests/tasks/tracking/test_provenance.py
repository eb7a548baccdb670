"""Where a result came from, with and without git and DVC."""

import subprocess

import pytest

from tasks.tracking.provenance import dvc_digests, provenance, requirements


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def test_provenance_names_commit_and_changes(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "one")

    clean = provenance(tmp_path)
    (tmp_path / "code.py").write_text("2\n")
    dirty = provenance(tmp_path)

    assert len(clean["git.commit"]) == 40
    assert clean["git.commit"] == clean["mlflow.source.git.commit"] == dirty["git.commit"]
    assert (clean["git.dirty"], dirty["git.dirty"]) == ("false", "true")


def test_provenance_outside_of_a_repository_is_unknown(tmp_path):
    tags = provenance(tmp_path)

    assert tags["git.commit"] == tags["git.dirty"] == "unknown"
    assert "mlflow.source.git.commit" not in tags


def test_provenance_takes_dvcs_names_and_not_its_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "training")
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")

    tags = provenance(tmp_path)

    assert tags["dvc.stage"] == "training"
    assert not any("analytics" in name for name in tags)


@pytest.mark.parametrize("text", [None, "", "stages: 3", "a: [", "stages:\n  one:\n    cmd: x\n"])
def test_dvc_digests_are_none_without_a_usable_lock_file(tmp_path, text):
    lock = tmp_path / "dvc.lock"
    if text is not None:
        lock.write_text(text)

    assert dvc_digests(lock) == {}


def test_requirements_leave_out_local_labels():
    """``torch==2.13.0+cpu`` is on no public index."""
    assert all("+" not in line and "==" in line for line in requirements("torch", "mlflow"))
