"""A training that goes on from the last output ends as one that was never cut."""

import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo
from registry_project import enter_project
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.files import file_digest, read_json
from astra_core.training.trainer import Trainer
from tasks.pipeline.continuing import last_files
from tasks.pipeline.stage import stage_of
from tasks.stages import rollouts, training

STAGE = stage_of(training.train_attacker)
GOES_ON = "training     continues from models/checkpoint, training step 3"


def params(*, export=True, **changes):
    """With two training steps in a round, the third is evaluated only where it is the last."""
    checkpoint = PARAMS.training.checkpoint.model_copy(update={"export": export})
    found = PARAMS.training.model_copy(update={"checkpoint": checkpoint, **changes})
    return PARAMS.model_copy(update={"training": found})


def trained(folder, monkeypatch, **changes):
    """The digests of all that the stage leaves in the folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    STAGE.run(params(**changes))
    paths = [path for product in STAGE.products for path in (product, *product.rglob("*"))]
    return {str(path): file_digest(path) for path in paths if path.is_file()}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A project with rollouts, before its first training."""
    folder = tmp_path_factory.mktemp("origin")
    with pytest.MonkeyPatch.context() as patch:
        enter_project(folder, patch)
        write_world(folder)
        stage_of(rollouts.collect_rollouts).run(PARAMS)
    return folder


@pytest.fixture(scope="module")
def short(origin, tmp_path_factory):
    """The project after a training of three steps, and the digests of what it left."""
    folder = shutil.copytree(origin, tmp_path_factory.mktemp("short") / "project")
    with pytest.MonkeyPatch.context() as patch:
        found = trained(folder, patch)
    return folder, found


@pytest.fixture(scope="module")
def long(origin, tmp_path_factory):
    """What a training of five steps leaves."""
    folder = shutil.copytree(origin, tmp_path_factory.mktemp("long") / "project")
    with pytest.MonkeyPatch.context() as patch:
        return trained(folder, patch, training_steps=5)


@pytest.fixture
def clone(short, tmp_path):
    """The outputs of the short training where it did not run."""
    folder = shutil.copytree(short[0], tmp_path / "clone")
    shutil.rmtree(folder / "runs")
    return folder


@pytest.mark.real
def test_a_longer_training_in_a_clone_leaves_the_bytes_of_one_from_the_start(
    clone, long, monkeypatch, capsys
):
    found = trained(clone, monkeypatch, training_steps=5)

    assert GOES_ON in capsys.readouterr().out.splitlines()
    assert long == found
    assert "models/checkpoint/step_000005/state.safetensors" in long
    assert [0, 2, 4, 5] == [
        point["training_step"]
        for point in read_json(clone / "reports/training.json")["evaluations"]
    ]


@pytest.mark.real
def test_the_same_training_in_a_clone_is_over_at_once(clone, short, monkeypatch, capsys):
    assert short[1] == trained(clone, monkeypatch)
    assert GOES_ON in capsys.readouterr().out.splitlines()


@pytest.mark.real
def test_a_run_that_has_begun_goes_by_its_own_state(clone, long, monkeypatch, capsys):
    trained(clone, monkeypatch, training_steps=5)
    capsys.readouterr()
    # Its output is gone for an older one, as after a checkout.
    assert long == trained(clone, monkeypatch, training_steps=5)
    assert "goes on" not in capsys.readouterr().out


@pytest.mark.real
def test_whether_the_state_is_exported_trains_nothing_again(short, tmp_path, monkeypatch):
    folder = shutil.copytree(short[0], tmp_path / "project")
    best = max(folder.glob("runs/*/checkpoints/best_*")).stat().st_mtime_ns
    without = trained(folder, monkeypatch, export=False)

    assert ["models/checkpoint/checkpoint.json"] == [n for n in without if "/checkpoint/" in n]
    assert not read_json(folder / "models/checkpoint/checkpoint.json")["is_exported"]
    assert best == max(folder.glob("runs/*/checkpoints/best_*")).stat().st_mtime_ns
    assert short[1] == trained(folder, monkeypatch)
    rest = {name: digest for name, digest in short[1].items() if "/checkpoint/" not in name}
    assert rest == {name: digest for name, digest in without.items() if "/checkpoint/" not in name}


class Loop(Trainer):
    """A loop of one's own."""


BEFORE = {
    "plain": {},
    "cosine": {"schedule": Choice(name="transformers", options={"kind": "cosine"})},
    "loop": {"trainer": Choice(name=f"{__name__}:Loop")},
}


@pytest.fixture(scope="module")
def begun(origin, short, tmp_path_factory):
    """The project after three steps of a kind of training, and the digests; each is made once."""
    made = {"plain": short}

    def make(kind):
        if kind not in made:
            folder = shutil.copytree(origin, tmp_path_factory.mktemp(kind) / "project")
            with pytest.MonkeyPatch.context() as patch:
                made[kind] = folder, trained(folder, patch, **BEFORE[kind])
        return made[kind]

    return make


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        (
            "cosine",
            {"training_steps": 5},
            "training.schedule depends on training_steps, so the 3 steps that are done would",
        ),
        ("plain", {"training_steps": 2}, "3 training steps are done, more than"),
        ("loop", {"training_steps": 5}, "what a custom tr"),
        ("loop", {}, "what a custom trainer saves"),
    ],
)
def test_what_a_run_from_the_start_would_not_come_by_is_left(
    origin, begun, tmp_path, monkeypatch, capsys, kind, changes, why
):
    project, digests = begun(kind)
    folder = shutil.copytree(project, tmp_path / "project")
    shutil.rmtree(folder / "runs")
    found = trained(folder, monkeypatch, **BEFORE[kind], **changes)

    assert f"training     starts over: {why}" in capsys.readouterr().out
    if changes:
        fresh = shutil.copytree(origin, tmp_path / "fresh")
        digests = trained(fresh, monkeypatch, **BEFORE[kind], **changes)
    assert digests == found


@pytest.mark.real
@pytest.mark.parametrize("change", [{"lr": 1e-4}, {"batch_size": 3}])
def test_another_run_says_nothing_of_it(clone, monkeypatch, capsys, change):
    trained(clone, monkeypatch, **change)

    assert "training  " not in capsys.readouterr().out


@pytest.mark.real
@pytest.mark.parametrize("file", ["step_000003/state.safetensors", "steps.jsonl", "best"])
def test_a_damaged_state_is_left(clone, long, monkeypatch, capsys, file):
    place = clone / "models/checkpoint"
    if file == "best":
        for path in place.glob("best_*/model.safetensors"):
            path.write_bytes(b"damaged")
    elif file == "steps.jsonl":
        (place / file).unlink()
    else:
        (place / file).write_bytes(b"damaged")
    found = trained(clone, monkeypatch, training_steps=5)

    assert "training     starts over: models/checkpoint is damaged" in capsys.readouterr().out
    assert long == found


@pytest.mark.real
def test_never_begins_from_the_start(clone, monkeypatch, capsys):
    checkpoint = PARAMS.training.checkpoint.model_copy(update={"resume": "never"})
    monkeypatch.chdir(clone)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{clone}/mlflow.db")
    STAGE.run(
        params().model_copy(
            update={
                "training": params().training.model_copy(
                    update={"checkpoint": checkpoint, "training_steps": 1}
                )
            }
        )
    )

    assert "goes on" not in capsys.readouterr().out
    assert Path("models/checkpoint/step_000001").is_dir()


WRITING = """\
stages:
  write:
    cmd: mkdir -p out/deep && echo one > out/one && echo two > out/deep/two
    outs:
    - out
"""
OUT = Path("out")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("made") / "project"


@pytest.fixture
def project(dvc_project, made):
    """A project with one output, made and cached: by DVC itself for the first test."""
    if made.exists():
        return Path(shutil.copytree(made, dvc_project, dirs_exist_ok=True))
    Path("dvc.yaml").write_text(WRITING, encoding="utf-8")
    with Repo(".") as repo:
        repo.reproduce()
    shutil.copytree(dvc_project, made)
    return dvc_project


def _texts():
    return {name: path.read_text() for name, path in last_files(OUT).items()}


@pytest.mark.real
def test_an_output_that_dvc_deleted_is_read_from_its_cache(project):
    whole = {"one": "one\n", "deep/two": "two\n"}

    assert whole == _texts()
    shutil.rmtree(OUT)
    assert whole == _texts()
    assert not OUT.exists()


def test_the_folder_itself_comes_first(project):
    (OUT / "one").unlink()

    assert {"deep/two": "two\n"} == _texts()


@pytest.mark.parametrize("kind", ["*.dir", "*"])
def test_a_cache_that_lacks_a_file_has_none(project, kind):
    shutil.rmtree(OUT)
    files = [path for path in Path(".dvc/cache/files").rglob(kind) if path.is_file()]
    min(files, key=lambda path: path.suffix != kind[1:]).unlink()

    assert {} == last_files(OUT)


def test_what_dvc_does_not_know_has_none(project):
    assert {} == last_files(Path("other"))
    Path("dvc.lock").unlink()
    shutil.rmtree(OUT)
    assert {} == last_files(OUT)


def test_without_dvc_there_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock = "stages: {a: {outs: [{path: out, md5: d751713988987e9331980363e24189ce.dir}]}}"
    Path("dvc.lock").write_text(lock, encoding="utf-8")

    assert {} == last_files(OUT)
