"""A copy of the project with a world small enough to run the whole pipeline in seconds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "astra_core",
    "astra_parts",
    "flows",
    "plugins",
    "tasks",
    "dvc.yaml",
    "params.yaml",
    "prefect.yaml",
    "pyproject.toml",
    "requirements.lock",
    "requirements-torch.lock",
    ".dvcignore",
    ".gitignore",
)
SMALL = (
    "prompts.num_builtin=400",
    "models.builtin.num_quarrels=300",
    "models.builtin.num_dialogues=300",
    "models.builtin.hidden_size=32",
    "models.builtin.intermediate_size=64",
    "system.probe.max_new_tokens=8",
    "system.response.max_new_tokens=8",
    "rollouts.num_prompts=6",
    "rollouts.sampler.options.tree_width=3",
    "training.algorithm.options.margin=0.01",
    "training.training_steps=6",
    "training.num_episodes_per_experience=4",
    "training.eval_every=3",
    "training.require_signal=false",
    "training.checkpoint.save_every=1",
    "evaluation.num_prompts=12",
    "evaluation.num_training_prompts=6",
    "evaluation.num_resamples=200",
    "evaluation.bandit_calls=40",
)


def make_project(folder: Path) -> Path:
    """A git repository with the project's own files and small parameters."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With what is compiled already, but for what another worker is writing.
            ignored = shutil.ignore_patterns("*.pyc.*")
            shutil.copytree(source, folder / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, folder / name)
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    set_params(folder, *SMALL)
    return folder


# The first stage checks plug-ins and files; to do so at each change would take seconds.
SET = """
import sys
from astra_core.files import write_text
from flows.settings import planned_params
from tasks.params.schema import PARAMS_FILE
from tasks.pipeline.order import PIPELINE_FILE, render
text, params = planned_params(sys.argv[1:])
write_text(text, PARAMS_FILE, is_shared=True)
write_text(render(params=params), PIPELINE_FILE, is_shared=True)
"""


def set_params(folder: Path, *assignments: str) -> None:
    """Changes params.yaml as ``astra run --set`` does, and renders dvc.yaml."""
    run_in(folder, "-c", SET, *assignments)


def run_in(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter in the project's folder, on its own copy of the code."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if check and result.returncode:
        message = f"{arguments} ended with {result.returncode}: {result.stdout}\n{result.stderr}"
        raise AssertionError(message)
    return result


def environment(folder: Path) -> dict[str, str]:
    """The variables a stage needs to stay inside the folder."""
    return {
        **os.environ,
        "PYTHONPATH": str(folder),
        "ASTRA_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "random",
        "DVC_SITE_CACHE_DIR": str(folder / ".dvc" / "site"),
        "DVC_NO_ANALYTICS": "1",
        "PREFECT_HOME": str(folder / ".prefect"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
    }
