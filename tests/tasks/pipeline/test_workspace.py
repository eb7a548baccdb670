import configparser
from pathlib import Path

from tasks.pipeline.workspace import copy_project, share_cache


def write(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_a_copy_has_code_and_inputs_and_no_outputs(tmp_path):
    root, folder = tmp_path / "ä b", tmp_path / "copy"
    write(root, "tasks/x.py", "params.yaml", "data/old", "my/prompts.txt", "my/other.txt")
    write(root, "tasks/__pycache__/x.pyc")
    folder.mkdir()
    copy_project(root, folder, inputs=[Path("my/prompts.txt"), tmp_path / "outside"])

    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert ["my/prompts.txt", "params.yaml", "tasks/x.py"] == found


def test_weights_are_linked_and_other_files_are_copies(tmp_path):
    root, folder = tmp_path / "root", tmp_path / "copy"
    write(root, "m/model.safetensors", "m/config.json")
    (root / "m/model.safetensors").write_bytes(bytes(2**20 + 1))
    folder.mkdir()
    copy_project(root, folder, inputs=[Path("m")])

    assert 2 == (folder / "m/model.safetensors").stat().st_nlink
    assert 1 == (folder / "m/config.json").stat().st_nlink


def test_the_cache_is_named_relative_so_that_a_project_can_be_moved(tmp_path):
    root, folder = tmp_path / "ä b", tmp_path / "ä b/sweeps/points/1"
    folder.mkdir(parents=True)
    share_cache(root, folder)
    record = configparser.ConfigParser()
    record.read(folder / ".dvc/config.local", encoding="utf-8")

    # DVC reads it from the folder of the file.
    assert (folder / ".dvc" / record["cache"]["dir"]).resolve() == (root / ".dvc/cache").resolve()
    assert str(tmp_path) not in (folder / ".dvc/config.local").read_text()
    assert "true" == record["core"]["no_scm"]
