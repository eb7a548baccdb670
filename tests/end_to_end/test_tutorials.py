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
from shared import finished_project

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs/tutorials/attack-a-chat-model.md"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def lines_of(page):
    """The commands of a page, in their order, without the program's name."""
    found = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in found]


def test_a_chat_model_behind_a_server_is_attacked_as_the_tutorial_says(tmp_path, tmp_path_factory):
    finished = finished_project(tmp_path_factory)
    project = finished.copy_after(tmp_path / "project", "prompts", "validation")
    shutil.copytree(ROOT / "params", project / "params")
    (code,) = blocks(PAGE, "python")
    run_in(project, "-c", code)
    _, _, _, serve, plan, run, report, examples = lines_of(PAGE)
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
