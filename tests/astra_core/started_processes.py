"""Starts the processes of a run on this machine, as torchrun would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SIZE = 2


def environment(rank, port, size=SIZE):
    paths = [str(HERE.parents[1]), str(HERE)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
    }


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def started(folder, *arguments, ranks=range(SIZE), size=SIZE, script="distributed_training.py"):
    """The processes of a run."""
    port = free_port()
    command = [sys.executable, str(HERE / script), str(folder), *arguments]
    return [
        subprocess.Popen(
            command, env=environment(rank, port, size), stderr=subprocess.PIPE, text=True
        )
        for rank in ranks
    ]


def ended(processes, timeout=500):
    """What each said last, and its exit status."""
    said = [process.communicate(timeout=timeout)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def left_in(folder):
    """What each process of a run has said, and its weights."""
    said = [json.loads((folder / f"said_{rank}").read_text()) for rank in range(SIZE)]
    return said, [(folder / f"weights_{rank}").read_bytes() for rank in range(SIZE)]


def as_numbers(weights):
    return np.frombuffer(weights, dtype=np.float32)
