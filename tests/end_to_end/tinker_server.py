"""A real server of the Tinker protocol, in an environment of its own: ``make services``.

It needs Python 3.12, so it cannot share the project's environment. It stays where the other servers
of the tests are (see ``real_servers``); making it downloads some gigabytes in a minute, starting it
takes ten seconds, and what is called first compiles for half a minute.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "tasks" / "builtin" / "shipped_model"
PACKAGES = ("skyrl[tinker,jax]==0.4.0", "aiohttp")
# The server starts its engine with uv, and reads its parent's command line: this stays the parent.
SHIM = """#!{python}
import subprocess, sys
rest = sys.argv[sys.argv.index("-m"):]
sys.exit(subprocess.run([{python!r}, *rest]).returncode)
"""


def environment() -> Path:
    """Where the server's environment is, or would be."""
    place = os.environ.get("ASTRA_TEST_SERVERS", "~/.cache/astra-test-servers")
    return Path(place).expanduser() / "tinker"


def is_made() -> bool:
    """Whether the environment is complete, of these packages."""
    ready = environment() / ".ready"
    return ready.is_file() and ready.read_text() == " ".join(PACKAGES)


def make() -> None:
    """Makes the environment; returns at once where it is complete."""
    folder = environment()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "tinker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_made():
            return
        subprocess.run([_python(), "-m", "venv", "--clear", folder], check=True)
        python = folder / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "uv"], check=True, timeout=600)
        install = [python, "-m", "uv", "pip", "install", "--python", python, "--quiet"]
        # The processor's torch, where an index has it; else the much larger one.
        wheels = ["--torch-backend", "cpu"]
        subprocess.run([*install, *wheels, "torch"], check=False, timeout=600)
        subprocess.run([*install, *PACKAGES], check=True, timeout=900)
        (folder / ".ready").write_text(" ".join(PACKAGES))


def _python() -> str:
    """A Python 3.12 of this machine."""
    own = sorted(Path("~/.pyenv/versions").expanduser().glob("3.12*/bin/python3.12"))
    for found in (shutil.which("python3.12"), "/usr/bin/python3.12", *map(str, own)):
        check = "import sys; sys.exit(sys.version_info[:2] != (3, 12))"
        if found and Path(found).exists() and not subprocess.call([found, "-c", check]):
            return found
    message = "make services must find Python 3.12, got none; install it beside 3.11"
    raise SystemExit(message)


def base_model(folder: Path) -> Path:
    """The shipped model, with the keys that the server reads at the top level of its config."""
    model = folder / "base"
    if not model.is_dir():
        shutil.copytree(SHIPPED, model)
        config = json.loads((model / "config.json").read_text())
        config |= {"rope_theta": config["rope_parameters"]["rope_theta"], "torch_dtype": "float32"}
        (model / "config.json").write_text(json.dumps(config))
    return model


@contextmanager
def tinker_server(folder: Path, port: int = 0) -> Iterator[str]:
    """The server with the shipped model, and with what it kept in the folder; its address.

    The port is a free one unless a server comes back to where it was.
    """
    python, shims = str(environment() / "bin" / "python"), folder / "bin"
    shims.mkdir(exist_ok=True)
    shim = shims / "uv"
    shim.write_text(SHIM.format(python=python))
    shim.chmod(0o700)
    port = port or free_port()
    settings = {"max_lora_adapters": 8, "max_lora_rank": 8, "loss_chunk_size": 0}
    # Each shape is compiled, which takes seconds: draws are padded to one number of rows, and
    # records are learned from in parts of at most so many.
    settings |= {"sample_max_num_sequences": 32, "train_micro_batch_size": 4}
    where = ["--host", "127.0.0.1", "--port", str(port), "--checkpoints-base", folder / "saved"]
    what = ["--base-model", base_model(folder), "--backend", "jax"]
    more = ["--database-url", f"sqlite:///{folder}/tinker.db"]
    more += ["--backend-config", json.dumps(settings)]
    cache = environment().parent / "tinker.jax"
    own = {
        "PATH": f"{shims}:{os.environ['PATH']}",
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        # Compiling takes minutes; what one test compiled the next one has.
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }
    process = subprocess.Popen(
        [shim, "run", "-m", "skyrl.tinker.api", *what, *where, *more],
        env={**os.environ, **own},
        stdout=(folder / "server.log").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _wait(port, process, folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def done_at(folder: Path) -> Counter[str]:
    """How often the server did each kind of work, by its own records."""
    with closing(sqlite3.connect(folder / "tinker.db")) as base:
        rows = base.execute(
            "SELECT request_type, count(*) FROM futures WHERE status = 'COMPLETED' GROUP BY 1"
        )
        return Counter(dict(rows.fetchall()))


def _wait(port: int, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 300.0
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/healthz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    message = f"the server did not start: {log.read_text()[-2000:]}"
    raise AssertionError(message)


def serve(folder: Path, port: int) -> None:
    """Serves the shipped model until the process is told to end, or its terminal is closed."""
    for ended in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(ended, signal.default_int_handler)
    folder.mkdir(parents=True, exist_ok=True)
    with tinker_server(folder.absolute(), port) as address, suppress(KeyboardInterrupt):
        sys.stdout.write(f"address: {address}\nbase_model: {base_model(folder)}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    make()
    sys.stdout.write(f"{environment()} is complete\n")
    if len(sys.argv) > 1:
        serve(Path(sys.argv[1]), int(sys.argv[2]))
