"""Replies per second from a server: our target against a bare concurrent client.

``python -m benchmarks endpoint`` asks a local server whose slots take a fixed time for a reply, at
several numbers of simultaneous calls. Ours writes every reply to disk before it is used, counts it
and respects limits; the bare client sends the same bodies over the same kind of connections and
keeps nothing. Both take turns. ``--url`` and ``--model`` name your own server on this machine.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.target import Answer, Surroundings
from astra_parts.arguments import LineParser, at_least_one
from astra_parts.targets.endpoint import Endpoint
from benchmarks.processor import machine
from tasks.machine.tables import markdown

CONCURRENCIES = (1, 8, 32)
LEAST_SHARE = 0.8
_HEADER = ("calls at once", "ours, replies/s", "bare client, replies/s", "share", "server's limit")
_SHORT = GenerationConfiguration(max_new_tokens=16)


@dataclass(frozen=True, slots=True)
class Rates:
    """Replies per second at one number of simultaneous calls, a value for each repetition."""

    concurrency: int
    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def share(self) -> float:
        """The median of ours over the bare client's, paired."""
        return statistics.median(x / y for x, y in zip(self.ours, self.bare, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; the exit status is 1 where ours has less than 80 % of the bare client."""
    parser = LineParser(prog="python -m benchmarks endpoint", description=__doc__)
    parser.add_argument("--replies", type=at_least_one, default=256, help="of each measurement")
    parser.add_argument("--repetitions", type=at_least_one, default=3)
    parser.add_argument("--slots", type=at_least_one, default=8, help="of the local server")
    parser.add_argument("--milliseconds", type=at_least_one, default=50, help="of one reply")
    parser.add_argument("--url", help="of a server of your own, up to /v1")
    parser.add_argument("--model", default="slots", help="as that server calls it")
    asked = parser.parse_args(arguments)
    with _server(asked.slots, asked.milliseconds / 1000, asked.url) as url:
        found = [
            rates(url, count, model=asked.model, replies=asked.replies, times=asked.repetitions)
            for count in CONCURRENCIES
        ]
    rows = [_row(own, None if asked.url else (asked.slots, asked.milliseconds)) for own in found]
    print(f"{machine()}\n\n{markdown(_HEADER, rows)}")
    return int(min(own.share for own in found) < LEAST_SHARE)


def rates(url: str, concurrency: int, *, model: str, replies: int, times: int) -> Rates:
    """Ours and the bare client's, which take turns."""
    ours, bare = [], []
    for turn in range(times):
        probes = [f"probe {turn} {number}" for number in range(replies)]
        ours.append(replies / _ours_s(url, probes, concurrency, model))
        bare.append(replies / _bare_s(url, probes, concurrency, model))
    return Rates(concurrency, tuple(ours), tuple(bare))


def _ours_s(url: str, probes: Sequence[str], concurrency: int, model: str) -> float:
    said = [Conversation(Prompt.of("so")).say(Message("user", probe)) for probe in probes]
    keys = [[derive_key(0, "benchmark", probe)] for probe in probes]
    with tempfile.TemporaryDirectory() as folder:
        options = {"base_url": url, "model": model, "concurrency": concurrency, "replies": folder}
        target = Endpoint(
            Endpoint.Options.read(options, where="target options"),
            surroundings=Surroundings(SystemConfiguration()),
        )
        # The process that makes the calls starts once in a run.
        target.respond(said[:1], [[derive_key(0, "first")]], _SHORT)
        start = time.perf_counter()
        outcomes = target.respond(said, keys, _SHORT)
        taken_s = time.perf_counter() - start
        target.close()
    failed = [each.reason for each in outcomes if not isinstance(each, Answer)]
    if failed:
        msg = f"{url} must answer every call, got {failed[0]}; look at its log"
        raise SystemExit(msg)
    return taken_s


def _bare_s(url: str, probes: Sequence[str], concurrency: int, model: str) -> float:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)

    def ask(probe: str) -> object:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": probe}],
            "temperature": 1.0,
            "top_p": 1.0,
            "max_tokens": _SHORT.max_new_tokens,
            "seed": 1,
        }
        answer = client.post(f"{url}/chat/completions", json=body)
        return json.loads(answer.raise_for_status().content)["choices"][0]["message"]["content"]

    start = time.perf_counter()
    with (
        httpx.Client(limits=limits, timeout=60.0, trust_env=False, verify=False) as client,  # noqa: S501
        ThreadPoolExecutor(concurrency) as pool,
    ):
        list(pool.map(ask, probes))
    return time.perf_counter() - start


def _row(own: Rates, server: tuple[int, int] | None) -> tuple[str, ...]:
    limit = ""
    if server is not None:
        slots, milliseconds = server
        limit = f"{min(own.concurrency, slots) * 1000 / milliseconds:.0f}"
    ours, bare = statistics.median(own.ours), statistics.median(own.bare)
    return (str(own.concurrency), f"{ours:.0f}", f"{bare:.0f}", f"{own.share:.0%}", limit)


@contextmanager
def _server(slots: int, seconds: float, url: str | None) -> Iterator[str]:
    """The address of the server: the given one, or that of one that ends with this scope."""
    if url is not None:
        yield url.rstrip("/")
        return
    process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own code
        [sys.executable, "-m", "benchmarks.reference.slots_server", str(slots), str(seconds)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield (process.stdout or sys.stdin).readline().strip()
    finally:
        process.communicate("")
