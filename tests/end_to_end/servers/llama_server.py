"""llama.cpp's own server on loopback: ``python llama_server.py FILE``; prints its address."""

import sys

import xllamacpp

SLOTS = 8


def main(file: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * 256
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201
    # Until the other side is gone.
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
