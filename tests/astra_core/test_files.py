import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from each_row import each_row
from safetensors.numpy import save_file

from astra_core.errors import DiskFullError
from astra_core.files import (
    draft_folder_of,
    draft_of,
    file_digest,
    folder_digest,
    read_json,
    record_digest,
    write_json,
    write_text,
)


class PowerCut(Exception):  # noqa: N818 - it is no error of a program
    """What happens in the middle of a write."""


def cut_power(*_arguments, **_options):
    raise PowerCut


def test_a_file_appears_whole_with_its_folders(tmp_path):
    path = tmp_path / "deep" / "file.txt"

    write_text("Grüße\n", path)

    assert path.read_bytes() == "Grüße\n".encode()
    assert [path] == list(path.parent.iterdir())


def test_a_write_that_is_cut_off_leaves_what_was_there(tmp_path):
    path = tmp_path / "file.txt"
    write_text("old", path)

    def write_half():
        with draft_of(path) as draft:
            draft.write_text("half")
            raise PowerCut

    with pytest.raises(PowerCut):
        write_half()
    assert path.read_text() == "old"
    assert [path] == list(tmp_path.iterdir())


def test_a_file_is_on_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        own = getattr(os, name)

        def noted(*arguments, own=own, name=name):
            calls.append(name)
            return own(*arguments)

        monkeypatch.setattr(os, name, noted)
    write_text("text", tmp_path / "file")
    with draft_folder_of(tmp_path / "folder") as draft:
        (draft / "inner").write_text("text")

    # The file, its name; then the file inside, the folder itself, its name.
    assert ["fsync", "replace", "fsync", "fsync", "fsync", "replace", "fsync"] == calls


def test_a_draft_that_a_killed_process_left_is_written_over(tmp_path):
    path = tmp_path / "file.txt"
    (tmp_path / ".file.txt.partial").write_text("x" * 100)

    write_text("new", path)

    assert path.read_text() == "new"


@pytest.fixture
def open_umask():
    """What a user's shell usually has."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_can_be_read_by_its_owner_alone_from_its_first_byte(tmp_path, open_umask):
    path = tmp_path / "file.txt"
    path.touch(0o644)
    with draft_of(path) as draft:
        assert 0o600 == _mode(draft)
        draft.write_text("text")

    assert 0o600 == _mode(path)


def test_a_file_that_its_writer_put_in_place_of_the_draft_is_closed_too(tmp_path, open_umask):
    with draft_of(tmp_path / "file.txt") as draft:
        (tmp_path / "other").write_text("text")
        (tmp_path / "other").replace(draft)

    assert 0o600 == _mode(tmp_path / "file.txt")


def test_a_folder_and_all_in_it_can_be_read_by_the_owner_alone(tmp_path, open_umask):
    outside = tmp_path / "outside"
    outside.write_text("somebody's")
    outside.chmod(0o644)
    with draft_folder_of(tmp_path / "folder") as draft:
        assert 0o700 == _mode(draft)
        (draft / "inner").mkdir()
        (draft / "inner" / "weights").write_bytes(b"weights")
        (draft / "link").symlink_to(outside)

    folder = tmp_path / "folder"
    assert 0o700 == _mode(folder) == _mode(folder / "inner")
    assert 0o600 == _mode(folder / "inner" / "weights")
    assert 0o644 == _mode(outside)


@each_row("mode", [None, 0o644, 0o664, 0o600])
def test_a_shared_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "dvc.yaml"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    before = os.umask(0o077)
    try:
        write_text("stages: {}", path, is_shared=True)
    finally:
        os.umask(before)

    assert (0o644 if mode is None else mode) == _mode(path)


def test_json_is_sorted_indented_and_ends_in_a_newline(tmp_path):
    path = tmp_path / "file.json"

    write_json({"b": "ä", "a": [1]}, path)

    assert path.read_text() == '{\n  "a": [\n    1\n  ],\n  "b": "ä"\n}\n'
    assert read_json(path) == {"a": [1], "b": "ä"}


def test_a_number_that_json_does_not_have_is_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "file.json"

    with pytest.raises(ValueError, match="JSON"):
        write_json({"a": float("nan")}, path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_replaces_the_one_before_as_a_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with draft_folder_of(path) as draft:
            (draft / "inner").mkdir()
            (draft / "inner" / name).write_text(name)

    assert [path / "inner" / "new"] == [p for p in path.rglob("*") if p.is_file()]
    assert [path] == list(tmp_path.iterdir())


def test_a_folder_that_is_cut_off_leaves_what_was_there(tmp_path):
    path = tmp_path / "folder"
    with draft_folder_of(path) as draft:
        (draft / "file").write_text("old")

    def write_half():
        with draft_folder_of(path) as draft:
            (draft / "file").write_text("half")
            raise PowerCut

    with pytest.raises(PowerCut):
        write_half()
    assert (path / "file").read_text() == "old"
    assert [path] == list(tmp_path.iterdir())


def test_replacing_a_folder_never_leaves_half_of_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "folder"
    for index in range(3):
        (path / str(index)).mkdir(parents=True)

    def replace_folder():
        with draft_folder_of(path) as draft:
            (draft / "new").mkdir()
            # From here on every removal of a tree is cut off before it begins.
            monkeypatch.setattr("shutil.rmtree", cut_power)

    with pytest.raises(PowerCut):
        replace_folder()
    assert ["new"] == [inner.name for inner in path.iterdir()]


def test_digests_are_those_of_the_content(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")

    # FIPS 180-2, appendix B.1.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert expected == file_digest(path)


def test_a_folder_digest_knows_names_and_bytes_but_not_times_or_order(tmp_path):
    for folder, names in (("one", "ab"), ("two", "ba")):
        (tmp_path / folder / "deep").mkdir(parents=True)
        for name in names:
            (tmp_path / folder / "deep" / name).write_text(name)
    os.utime(tmp_path / "two" / "deep" / "a", (1, 1))
    same = folder_digest(tmp_path / "one")

    assert same == folder_digest(tmp_path / "two")
    (tmp_path / "two" / "deep" / "a").rename(tmp_path / "two" / "deep" / "c")
    assert same != folder_digest(tmp_path / "two")
    assert same == folder_digest(tmp_path / "one", keep=lambda path: path.name in "ab")
    (tmp_path / "one" / "deep" / "a").write_text("b")
    assert same != folder_digest(tmp_path / "one")


def test_equal_records_have_equal_digests():
    record = {"b": [1, 2.5], "a": None}

    assert record_digest(record) == record_digest(json.loads('{"a": null, "b": [1, 2.5]}'))
    assert record_digest(record) != record_digest({"b": [2.5, 1], "a": None})


NUMBERS = np.random.default_rng(0).random(200_000)
WRITERS = {
    "text": lambda path: path.write_text("x" * 2_000_000),
    "csv": lambda path: pd.DataFrame({"x": NUMBERS}).to_csv(path),
    "parquet": lambda path: pd.DataFrame({"x": NUMBERS}).to_parquet(path),
    "safetensors": lambda path: save_file({"x": NUMBERS}, path),
}


@pytest.fixture
def small_files():
    """Writes fail beyond 64 KiB, as on a full disk; works everywhere and without rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", WRITERS)
def test_whoever_writes_a_full_disk_is_named_with_the_file(kind, tmp_path, small_files):
    path = tmp_path / f"own.{kind}"
    write_text("old", path)

    def write(context, file=""):
        with context(path) as draft:
            WRITERS[kind](draft / file if file else draft)

    with pytest.raises(
        DiskFullError, match=rf"disk /\S* must have room for .*own\.{kind}"
    ) as caught:
        write(draft_of)
    assert "old" == path.read_text()
    assert 1 == len(str(caught.value).splitlines())
    path.unlink()
    with pytest.raises(DiskFullError, match=rf"must have room for .*own\.{kind}, got"):
        write(draft_folder_of, "part")
    assert [] == list(tmp_path.iterdir())


def test_another_mistake_of_a_writer_is_its_own(tmp_path):
    def write(error):
        with draft_of(tmp_path / "file"):
            raise error

    for error in (ValueError("disk"), PermissionError(13, "no"), DiskFullError("told already")):
        with pytest.raises(type(error)) as caught:
            write(error)
        assert error is caught.value


ON_A_FULL_DISK = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:4]
from astra_core.errors import DiskFullError
from astra_core.files import disk_full, draft_of
from test_files import WRITERS
full = Path(sys.argv[1])
# A copy from one disk to another, and a writer that names no file.
print(disk_full(OSError(28, "no space", sys.executable, None, str(full / "own.copy"))))
print(disk_full(OSError(28, "no space"), Path.cwd(), full / "own.cache"))
for kind, write in WRITERS.items():
    try:
        with draft_of(Path(sys.argv[1], f"own.{kind}")) as draft:
            write(draft)
    except DiskFullError as error:
        print(error)
"""


@pytest.mark.real
def test_a_disk_that_is_really_full_is_named_by_where_it_is_mounted(tmp_path):
    script = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1" "$4" "$5"'
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    arguments = [str(tmp_path), sys.executable, ON_A_FULL_DISK, *folders]
    told = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in told.stderr or "mount" in told.stderr:
        pytest.skip(f"needs a user namespace with a file system of its own: {told.stderr.strip()}")

    lines = told.stdout.splitlines()
    assert ["copy", "cache", *WRITERS] == [_kind(line) for line in lines], told
    assert all(line.startswith(f"disk {tmp_path} must have room for") for line in lines)


def _kind(line):
    return line.partition("own.")[2].partition(",")[0]
