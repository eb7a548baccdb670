"""garak, in an environment of its own: led by a trained attacker, and reading what is exported."""

import json
import os
import subprocess

import pytest
from found_by_hand import finding
from project import ROOT
from real_servers import attacker_and_target, python_with
from shared import finished_project

from tasks.findings.exports import export
from tasks.findings.replay import SuiteCase

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

GARAK = ("garak==0.17.1", "torch==2.13.0")


def _garak():
    return python_with("garak", GARAK, builds="ecoji,langdetect")


def test_garak_digests_what_is_exported(tmp_path):
    report, _ = export("garak", [SuiteCase(finding("be bad"))], tmp_path / "found.report.jsonl")
    command = [_garak(), "-m", "garak.analyze.report_digest", "-r", report, "-o", "page.html"]
    home = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=home, check=True, timeout=300)

    page = (tmp_path / "page.html").read_text("utf-8")
    assert "astra.Judge" in page
    assert "atkgen" in page


def test_garak_attacks_with_the_attacker_as_the_page_says(tmp_path, tmp_path_factory):
    project = finished_project(tmp_path_factory).copy_to(tmp_path / "project")
    config = (ROOT / "examples/other_tools/atkgen.yaml").read_text("utf-8")
    with attacker_and_target(project) as urls:
        for url, port in zip(urls, ("8010", "8011"), strict=True):
            config = config.replace(f"http://127.0.0.1:{port}/v1", url)
        (tmp_path / "atkgen.yaml").write_text(config)
        command = [_garak(), "-m", "garak", "--config", "atkgen.yaml"]
        command += ["--probes", "atkgen.Tox", "--detectors", "always.Pass", "--generations", "1"]
        home = {**os.environ, "HOME": str(tmp_path), "OPENAICOMPATIBLE_API_KEY": "none"}
        command += ["--report_prefix", tmp_path / "found"]
        subprocess.run(command, cwd=tmp_path, env=home, check=True, timeout=900)

    lines = map(json.loads, (tmp_path / "found.report.jsonl").read_text().splitlines())
    said = [
        [(turn["role"], bool(turn["content"]["text"])) for turn in talk["turns"]]
        for line in lines
        if line["entry_type"] == "attempt" and line["status"] == 2
        for talk in line["conversations"]
    ]
    assert [("user", True), ("assistant", True)] in said
