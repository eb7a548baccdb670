import pytest
from each_row import each_row

from astra_core.errors import AuthorizationError, ConfigurationError
from astra_parts.targets.authorization import Authorization, check_address, is_loopback

OURS = Authorization(owner="us", note="ticket 7", hosts=("model.example.org",))


@each_row(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("0.0.0.1", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("2130706433", False),
    ],
)
def test_loopback_is_this_machine_and_nothing_that_looks_like_it(host, expected):
    assert expected == is_loopback(host)


def test_loopback_needs_no_authorization_and_another_host_does():
    assert check_address("http://[::1]:8000/v1", None)
    assert not check_address("https://MODEL.example.org/v1", OURS)
    with pytest.raises(AuthorizationError, match=r"got none; ask only what you may"):
        check_address("https://model.example.org/v1", None)
    with pytest.raises(AuthorizationError, match=r"got \['model.example.org'\]"):
        check_address("https://sub.model.example.org/v1", OURS)


@each_row(
    "address",
    [
        "http://host/v1?key=sk-hidden",
        "http://host/v1?sk-hidden",
        "host/v1?key=sk-hidden&" + "x" * 200 + "=sk-hidden",
        "http://me:sk-hidden@host/v1",
        "http://me:" + "sk-hidden" * 30 + "@host/v1",
        "http://host/v1#token=sk-hidden",
    ],
)
def test_a_refused_address_shows_no_key(address):
    with pytest.raises(AuthorizationError, match="host") as refused:
        check_address(address, None)

    assert "hidden" not in str(refused.value)


@each_row("missing", ["owner", "note", "hosts"])
def test_an_authorization_says_who_why_and_where(missing):
    given = {"owner": "us", "note": "ticket 7", "hosts": ["a"]}
    empty = [] if missing == "hosts" else ""
    with pytest.raises(ConfigurationError, match=missing):
        Authorization.read({**given, missing: empty}, where="authorization")
