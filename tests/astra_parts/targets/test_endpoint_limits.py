"""What a target behind HTTP may cost, whom it may ask, and who may read what came back."""

import subprocess
import sys
from pathlib import Path

import asking
import pytest
from asking import PROBES, ask, endpoint, texts
from each_row import each_row
from hostile_server import hostile_server, well
from outside_calls import outside_calls

from astra_core.errors import AuthorizationError, BudgetError, ConfigurationError
from astra_core.target import Answer


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "replies"


def test_a_budget_of_calls_is_never_exceeded_and_what_was_answered_is_kept(folder):
    def failing(handler, body, number):
        handler.give(b"", 500)

    limit = {"budget": {"calls": 10, "evaluation_share": 0.0}, "retries": 3}
    with hostile_server() as server:
        target = endpoint(server.url, folder, **limit)
        ask(target, PROBES[:6])
        with pytest.raises(BudgetError, match=r"6 of 10 calls made and 6 more to make; raise"):
            ask(target)
        assert 6 == len(server.requests)
        server.behave = failing
        with pytest.raises(BudgetError, match="10 of 10 calls"):
            ask(endpoint(server.url, folder, **limit), PROBES[:9])
        assert 10 == len(server.requests)
        # What is kept needs no call, and another name counts from 0.
        assert 6 == len(texts(ask(target, PROBES[:6])))
        server.behave = well
        named = {"budget": {"calls": 10, "name": "second", "evaluation_share": 0.0}}
        assert 10 == len(texts(ask(endpoint(server.url, folder, **named), PROBES[:10])))


@pytest.mark.parametrize(
    ("budget", "words"),
    [({"tokens": 30}, "36 of 30 tokens"), ({"money": 3e-5}, "3.4e-05 of 3e-05 spent")],
)
def test_a_budget_of_tokens_or_money_ends_it_too(folder, budget, words):
    limit = {"budget": {**budget, "evaluation_share": 0.0}, "concurrency": 1}
    with hostile_server() as server:
        target = endpoint(server.url, folder, prices={"input": 1.0, "output": 2.0}, **limit)
        with pytest.raises(BudgetError, match=words):
            ask(target)


def test_a_share_of_the_budget_is_kept_for_evaluations(folder):
    with hostile_server() as server:
        target = endpoint(server.url, folder, budget={"calls": 10, "evaluation_share": 0.4})
        ask(target, PROBES[:6])
        with pytest.raises(BudgetError):
            ask(target, PROBES[:7])
        with target.evaluating():
            ask(target, PROBES[:10])
        with pytest.raises(BudgetError):
            ask(target, PROBES[:11])

        assert 10 == len(server.requests)


def test_figures_are_of_an_account_and_survive_the_process(folder):
    prices = {"prices": {"input": 1.0, "output": 2.0}}
    with hostile_server() as server:
        target = endpoint(server.url, folder, **prices)
        with target.calls.account_for("training 1"):
            ask(target, PROBES[:4])
        ask(target, PROBES[:8])
        again = endpoint(server.url, folder, **prices)
        with again.calls.account_for("training 1"):
            ask(again, PROBES[2:6])
            figures = again.calls.figures()

    assert (6.0, 42.0, 30.0) == (figures["calls"], figures["tokens_in"], figures["tokens_out"])
    assert 102e-6 == pytest.approx(figures["cost"])
    assert 0.0 < figures["latency_p50_s"] <= figures["latency_p90_s"] <= figures["latency_p99_s"]


@each_row(
    "url",
    [
        "https://api.example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "http://10.0.0.1:8000/v1",
        "http://localhost.example.org",
    ],
)
def test_a_host_that_is_not_authorised_is_refused_before_a_socket_opens(folder, url):
    other = {"owner": "us", "note": "T-1", "hosts": ["example.org"]}
    with outside_calls() as asked:
        for given in ({}, {"authorization": other}):
            with pytest.raises(AuthorizationError, match="authorization must name the host"):
                endpoint(url, folder, **given)

    assert [] == asked


@each_row(
    "url",
    [
        "http://me:secret@127.0.0.1/v1",
        "http://127.0.0.1\\@example.org",
        "ftp://127.0.0.1",
        "http://127.0.0.1/v1?key=secret",
        "127.0.0.1:8000",
    ],
)
def test_an_address_that_could_be_read_twice_is_refused_without_its_secret(folder, url):
    with pytest.raises(AuthorizationError, match="base_url must be") as raised:
        endpoint(url, folder)

    assert "me:secret" not in str(raised.value)


def test_an_authorised_host_is_asked_and_none_else(folder):
    with outside_calls() as asked:
        authorization = {"owner": "us", "note": "T-1", "hosts": ["Model.example.org"]}
        target = endpoint(
            "http://model.example.org/v1", folder, authorization=authorization, retries=0
        )
        assert "down" == ask(target, ["one"])[0].kind

    assert {"model.example.org"} == set(asked)


def test_a_proxy_of_the_environment_does_not_see_loopback(folder, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with hostile_server() as server:
        assert isinstance(ask(endpoint(server.url, folder), ["one"])[0], Answer)


def test_the_key_is_sent_and_nowhere_else(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", "sk-hidden")
    (tmp_path / "key").write_text("sk-filed\n")
    with hostile_server() as server:
        named = endpoint(server.url, folder, key_env="MY_KEY")
        filed = endpoint(server.url, folder, key_file=str(tmp_path / "key"))
        plain = endpoint(server.url, folder)
        ask(named, ["one"])
        ask(filed, ["two"])
        sent = [headers.get("Authorization") for _, headers in server.requests]
        named.close()

    assert ["Bearer sk-hidden", "Bearer sk-filed"] == sent
    assert named.digest() == filed.digest() == plain.digest()
    assert "sk-hidden" not in repr(named.options) + str(vars(named.options))
    assert not any(b"sk-" in file.read_bytes() for file in folder.iterdir())
    for given in ({"key_env": "NO_KEY"}, {"key_file": str(tmp_path / "none")}):
        with pytest.raises(ConfigurationError, match="must hold the endpoint's key"):
            endpoint(server.url, folder, **given)


def test_only_its_owner_can_read_the_replies(folder):
    with hostile_server() as server:
        target = endpoint(server.url, folder)
        ask(target, ["one"])

        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}
        assert {"0o600"} == set(modes.values())
        assert "0o700" == oct(folder.stat().st_mode & 0o777)


def test_a_file_of_replies_that_is_none_is_one_line(folder):
    with hostile_server() as server:
        target = endpoint(server.url, folder)
        folder.mkdir()
        target.calls.replies.path.write_bytes(b"no database at all" * 100)
        with pytest.raises(ConfigurationError, match="must be a file of kept replies"):
            ask(target, ["one"])

        assert [] == server.requests


SPENDING = """
import sys
sys.path[:0] = sys.argv[4:]
from asking import ask, endpoint
from astra_core.errors import BudgetError
limit = {"calls": 100, "evaluation_share": 0.0}
target = endpoint(sys.argv[1], sys.argv[2], name="t", budget=limit, concurrency=4)
try:
    for number in range(60):
        ask(target, [f"{sys.argv[3]} {number}"])
except BudgetError:
    sys.exit(7)
"""


@pytest.mark.real
def test_processes_at_once_spend_one_budget_to_the_last_call(folder):
    here = str(Path(asking.__file__).parent)
    with hostile_server() as server:
        whose = [[server.url, str(folder), name, here] for name in ("one", "two", "three")]
        spenders = [subprocess.Popen([sys.executable, "-c", SPENDING, *own]) for own in whose]
        ended = {spender.wait(900.0) for spender in spenders}

        assert 100 == len(server.requests)
        assert {1} == set(server.keys.values())
    # Three ask for 180: at least two of them meet the limit.
    assert 7 in ended <= {0, 7}
