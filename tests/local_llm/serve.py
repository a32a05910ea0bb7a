"""Serves a model on loopback until its standard input ends: run by the server's own interpreter, never by ours.

    python serve.py MODEL PORT

One slot and no spare cache in memory: a second conversation evicts the first one's prefix. One thread: two of them
wait for each other on a machine that has other work.
"""

import importlib
import sys
from typing import Any


def main() -> None:
    llama: Any = importlib.import_module("xllamacpp")
    model, port = sys.argv[1:]
    wanted = llama.CommonParams()
    wanted.model.path = model
    wanted.hostnames, wanted.port = ["127.0.0.1"], int(port)
    wanted.n_parallel, wanted.n_ctx, wanted.cache_ram_mib = 1, 8192, 0
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.endpoint_metrics = True
    server = llama.Server(wanted)
    # Whoever started it holds the other end: it never outlives them.
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
