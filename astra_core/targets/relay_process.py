"""The program of a relay: makes requests for its parent, and finishes them after the parent's end.

Reads lines of JSON: first where to ask and whose calls they are, to which an empty object says that
it is ready; then requests, and the keys of answers that are kept by now. When its input ends, it
finishes what it was asked, and leaves what nobody has kept in the file of replies, where the next
run finds it.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from astra_core.targets.posting import Posting, Server, UnansweredError
from astra_core.targets.under_way import leave_answers


class _Answers:
    """What was answered and is not kept yet; told to the parent while there is one."""

    def __init__(self, posting: Posting) -> None:
        self.waiting: dict[str, str] = {}
        self._posting = posting
        self._lock = threading.Lock()

    def fetch(self, key: str, body: str) -> None:
        """Makes one request, and tells what came of it."""
        try:
            answer = self._posting.post(key, body).line()
        except UnansweredError as error:
            self._tell({"key": key, "error": [error.kind, error.words, error.is_final]})
        except Exception as error:  # noqa: BLE001  # the parent must hear of it
            self._tell({"key": key, "error": ["down", type(error).__name__, False]})
        else:
            self.waiting[key] = answer
            self._tell({"key": key, "answer": answer})

    def _tell(self, told: dict[str, Any]) -> None:
        with self._lock:
            try:
                sys.stdout.write(f"{json.dumps(told)}\n")
                sys.stdout.flush()
            except BrokenPipeError:
                pass  # the parent has ended


def main() -> None:
    """Makes requests until the input ends, and then finishes."""
    first = json.loads(sys.stdin.readline())
    server = Server(**first["server"])
    answers = _Answers(Posting(server))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    with ThreadPoolExecutor(server.concurrency) as pool:
        for line in sys.stdin:
            if not line.endswith("\n"):
                break  # the parent was killed while it wrote
            told = json.loads(line)
            if "kept" in told:
                answers.waiting.pop(told["kept"], None)
            else:
                pool.submit(answers.fetch, told["key"], told["body"])
    leave_answers(Path(first["database"]), first["owner"], answers.waiting)


if __name__ == "__main__":
    main()
