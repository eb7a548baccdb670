"""Where a result came from, with and without git and DVC."""

import subprocess

from each_row import each_row

from tasks.tracking.lineage.provenance import (
    code_changes,
    dvc_digests,
    is_tracked,
    provenance,
    requirements,
)


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
    assert clean["version.astra-red-team"][0].isdecimal()
    assert [True, False] == [is_tracked(tmp_path / name) for name in ("code.py", "c*")]


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


@each_row("text", [None, "", "stages: 3", "a: [", "stages:\n  one:\n    cmd: x\n"])
def test_dvc_digests_are_none_without_a_usable_lock_file(tmp_path, text):
    lock = tmp_path / "dvc.lock"
    if text is not None:
        lock.write_text(text)

    assert dvc_digests(lock) == {}


def test_requirements_leave_out_local_labels():
    """``torch==2.13.0+cpu`` is on no public index."""
    assert all("+" not in line and "==" in line for line in requirements("torch", "mlflow"))


def test_changes_of_code_are_a_patch_and_of_other_files_only_a_number(tmp_path):
    git(tmp_path, "init", "-q")
    for name in ("code.py", "prompts.txt"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert "" == code_changes(tmp_path)

    (tmp_path / "code.py").write_text("2\n")
    (tmp_path / "prompts.txt").write_text("an attack\n")
    told = code_changes(tmp_path)

    assert "-1\n+2\n" in told
    assert "prompts.txt | 2 +-" in told
    assert "an attack" not in told
    assert code_changes(tmp_path, limit=20).endswith("... cut off at 20 characters\n")


def test_the_pages_of_mlflow_show_who_ran_what(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "training")
    tags = provenance(tmp_path)

    assert tags["mlflow.user"]
    assert ("python -m tasks training", "LOCAL") == (
        tags["mlflow.source.name"],
        tags["mlflow.source.type"],
    )
