import json
import subprocess
import sys
from dataclasses import asdict

import pytest
from hostile_server import cut, hostile_server, well

from astra_core.targets.budget import Budget, Prices, Purse
from astra_core.targets.kept import Claim, KeptReplies
from astra_core.targets.posting import Answered, Server

PURSE = Purse(Budget(name="b"), Prices())


def first_line(url, replies):
    where = {"url": f"{url}/chat/completions", "base_url": url, "key": "", "is_here": True}
    server = Server(concurrency=2, timeout_s=60.0, max_reply_bytes=10_000, **where)
    return {
        "server": asdict(server),
        "database": str(replies.path),
        "owner": replies.owner.name,
    }


@pytest.mark.real
def test_what_nobody_has_kept_is_left_for_the_next_run(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")
    assert [Claim()] * 4 == [replies.claim(key, PURSE) for key in ("a", "b", "c", "d")]

    def behave(handler, body, number):
        (cut if body["messages"] == ["b"] else well)(handler, body, number)

    with hostile_server(behave) as server:
        program = [sys.executable, "-m", "astra_core.targets.relay_process"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(program, **pipes)

        def say(line):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        def request(key):
            return {"key": key, "body": json.dumps({"messages": [key]})}

        assert {} == say(first_line(server.url, replies))
        kept = say(request("a"))
        assert ["b", "down"] == [(told := say(request("b")))["key"], told["error"][0]]
        process.stdin.write(json.dumps({"kept": "a"}) + "\n")
        # Who wrote these lines is gone: one is whole, and one is not.
        process.communicate(json.dumps(request("c")) + "\n" + json.dumps(request("d"))[:-3])

        assert {"a": 1, "b": 1, "c": 1} == dict(server.keys)
    assert 200 == Answered.read(kept["answer"]).status
    replies.close()
    again = KeptReplies(tmp_path / "kept.sqlite")
    answer = again.claim("c", PURSE).answer
    assert "choices" in json.loads(Answered.read(answer).content)
    # Of the others nothing is left to wait for, nor to be told of.
    assert [Claim()] * 3 == [again.claim(key, PURSE) for key in ("a", "b", "d")]
