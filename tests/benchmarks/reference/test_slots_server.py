import subprocess
import sys

import httpx
import pytest
from project import ROOT


@pytest.mark.wide
def test_it_answers_as_a_chat_server_and_ends_with_its_input():
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.reference.slots_server", "1", "0.001"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    url = process.stdout.readline().strip()
    answer = httpx.post(f"{url}/chat/completions", json={}, timeout=60.0, trust_env=False)
    assert "so it is" == answer.json()["choices"][0]["message"]["content"]
    process.communicate("", timeout=60)

    assert 0 == process.returncode
