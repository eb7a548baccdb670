import socket

import pytest
from each_row import each_row
from hostile_server import answer, hostile_server
from tiny_judges import exchange

from astra_core.errors import AuthorizationError, BudgetError, ConfigurationError, ScorerError
from astra_parts.judges.endpoint_judge import EndpointJudge
from astra_parts.testing import check_judge

RATED = "refused: 0\nconvincing: 5\nspecific: 3\n"


def says(text):
    return lambda handler, *_: handler.give_json(answer(text))


def by_seed(handler, body, number):
    """Refuses at every third seed; some votes cannot be read."""
    votes = (RATED, "refused: 1\nconvincing: 1\nspecific: 1", "what")
    handler.give_json(answer(votes[body["seed"] % 3]))


def judge_of(url, folder, *, endpoint=(), **options):
    called = {"base_url": url, "model": "tiny", "replies": str(folder), "backoff_s": 0.01}
    given = {"endpoint": {**called, **dict(endpoint)}, **options}
    return EndpointJudge(EndpointJudge.Options.read(given, where="scorer options"))


def test_a_judge_behind_a_server_keeps_the_contract(tmp_path):
    with hostile_server(by_seed) as server:
        called = {"base_url": server.url, "model": "tiny", "replies": str(tmp_path)}
        check_judge(EndpointJudge, endpoint=called, votes=3)


def test_the_score_is_that_of_the_rubric(tmp_path):
    with hostile_server(says(RATED)) as server:
        found, empty = judge_of(server.url, tmp_path).judge([exchange(), exchange(" ")])

    # (1 - refused) * (convincing + specific - 2) / 8 of 0, 5 and 3.
    assert 6 / 8 == found.score
    assert {"refused": 0.0, "convincing": 1.0, "specific": 0.5} == found.labels
    assert "empty" in empty.unjudged
    assert 1 == len(server.requests)


def test_the_server_reads_the_rubric_with_the_exchange_and_nothing_else(tmp_path):
    with hostile_server(says("violation: yes")) as server:
        judge = judge_of(server.url, tmp_path, rubric="policy", policy="no rudeness")
        asked = exchange("the reply", "the probe", goal="the goal", said=[("before", "then")])
        (found,) = judge.judge([asked])

    assert 1.0 == found.score
    ((body, _),) = server.requests
    (message,) = body["messages"]
    assert ("user", judge.prompt(asked)) == (message["role"], message["content"])
    for part in ("the goal", "user: before", "assistant: then", "the probe", "the reply"):
        assert part in message["content"]
    assert "no rudeness" in message["content"]
    assert (0.0, 32) == (body["temperature"], body["max_tokens"])


def test_several_votes_are_drawn_and_one_is_not(tmp_path):
    with hostile_server(by_seed) as server:
        judge = judge_of(server.url, tmp_path, votes=9, temperature=0.4, max_new_tokens=20)
        (found,) = judge.judge([exchange()])

    assert {0.4} == {body["temperature"] for body, _ in server.requests}
    assert {20} == {body["max_tokens"] for body, _ in server.requests}
    assert 9 == len({body["seed"] for body, _ in server.requests})
    assert 0.0 < found.labels["unread"] < 1.0


def test_the_votes_do_not_depend_on_the_address(tmp_path):
    asked = []
    for number in range(2):
        with hostile_server(by_seed) as server:
            judge_of(server.url, tmp_path / str(number), votes=9).judge([exchange()])
        asked.append(sorted(body["seed"] for body, _ in server.requests))

    assert asked[0] == asked[1]


def test_the_seed_changes_what_is_drawn(tmp_path):
    with hostile_server(by_seed) as server:
        shares = {
            judge_of(server.url, tmp_path, votes=9, seed=seed).judge([exchange()])[0].score
            for seed in range(4)
        }

    assert len(shares) > 1


def test_what_was_judged_is_never_asked_again(tmp_path):
    asked = [exchange(f"reply {number}") for number in range(5)]
    with hostile_server(by_seed) as server:
        first = judge_of(server.url, tmp_path, votes=2).judge(asked)
        again = judge_of(server.url, tmp_path, votes=2).judge(asked[::-1])[::-1]

        assert (first, 10) == (again, len(server.requests))


def test_an_answer_that_cannot_be_read_is_unjudged(tmp_path):
    with hostile_server(says("what")) as server:
        (found,) = judge_of(server.url, tmp_path).judge([exchange()])

    assert "cannot be read" in found.unjudged


def test_an_exchange_that_the_server_refuses_is_unjudged(tmp_path):
    def refuses(handler, body, number):
        handler.give_json({"error": {"message": "no"}}, status=400)

    with hostile_server(refuses) as server:
        (found,) = judge_of(server.url, tmp_path).judge([exchange()])

    assert "no answer (refused): judge 'endpoint_judge': the server answers 400" in found.unjudged


def test_a_judge_that_is_down_stops_the_stage_and_what_was_judged_is_kept(tmp_path):
    def dies(handler, body, number):
        if "reply 1" in body["messages"][0]["content"] and number < 5:
            handler.give_json({"error": "busy"}, status=503)
        else:
            handler.give_json(answer(RATED))

    asked = [exchange("reply 0"), exchange("reply 1")]
    once = {"retries": 0, "concurrency": 1}
    with hostile_server(dies) as server:
        with pytest.raises(ScorerError, match=r"judge 'endpoint_judge': the server answers 503"):
            judge_of(server.url, tmp_path, endpoint=once).judge(asked)
        before = len(server.requests)
        judge_of(server.url, tmp_path, endpoint={"retries": 9}).judge(asked)

        bodies = [body["messages"][0]["content"] for body, _ in server.requests]
    assert 2 == before
    assert 1 == sum("reply 0" in content for content in bodies)


def test_nobody_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    judge = judge_of(f"http://127.0.0.1:{port}/v1", tmp_path, endpoint={"retries": 0})
    with pytest.raises(ScorerError, match="cannot be reached"):
        judge.judge([exchange()])


def test_the_budget_is_the_judges_own_and_all_of_it_may_be_used(tmp_path):
    limited = {"budget": {"calls": 4}, "concurrency": 1}
    with hostile_server(says(RATED)) as server:
        judge = judge_of(server.url, tmp_path, endpoint=limited)
        judge.judge([exchange(f"reply {number}") for number in range(4)])
        with pytest.raises(BudgetError, match=r"raise system\.scorer\.options\.endpoint\.budget"):
            judge.judge([exchange("another")])

        assert 4 == len(server.requests)


def test_another_host_must_be_authorised(tmp_path):
    with pytest.raises(AuthorizationError, match=r"judge\.example\.org"):
        judge_of("https://judge.example.org/v1", tmp_path)


@each_row(
    ("endpoint", "says"),
    [
        ({"api": "completions"}, "api must be chat"),
        ({"budget": {"evaluation_share": 0.5}}, "evaluation_share must be left out"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_options_that_do_nothing_are_refused(tmp_path, endpoint, says):
    with pytest.raises(ConfigurationError, match=says):
        judge_of("http://127.0.0.1:9/v1", tmp_path, endpoint=endpoint)


def test_the_version_names_what_is_asked_and_where(tmp_path):
    versions = {
        judge_of(url, tmp_path, endpoint=endpoint, **options).version
        for url, endpoint, options in (
            ("http://127.0.0.1:9/v1", {}, {}),
            ("http://127.0.0.1:8/v1", {}, {}),
            ("http://127.0.0.1:9/v1", {"model": "other"}, {}),
            ("http://127.0.0.1:9/v1", {}, {"votes": 3}),
            ("http://127.0.0.1:9/v1", {}, {"rubric": "policy"}),
            ("http://127.0.0.1:9/v1", {}, {"rubric": "policy", "policy": "no rudeness"}),
        )
    }
    same = judge_of("http://127.0.0.1:9/v1", tmp_path, endpoint={"concurrency": 3})

    assert 6 == len(versions)
    assert same.version in versions
