"""A page of another site, in a real browser, tries to use our servers; our own pages still work."""

import functools
import http.client
import http.server
import json
import shutil
import socket
import threading
import time

import pytest
from each_row import each_row

from flows.servers import services
from flows.servers.access import FILE, auth_string, header, login_link

pytestmark = pytest.mark.real

FOREIGN = "evil.example"
FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium's own needs another user than root
    "--disable-gpu",
    "--window-size=1300,900",  # a page draws the rows that can be seen
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1",  # a name server that an attacker owns
)
POOL = {"name": "taken", "type": "process"}
EXPERIMENT = {"name": "taken"}
POOLS, EXPERIMENTS = "/api/work_pools/", "/api/2.0/mlflow/experiments/create"
# Sends a record in every way that a page can, and says what came back.
ATTACK = """
const [url, record, answer] = arguments;
const kinds = ["application/json", "text/plain", "application/x-www-form-urlencoded"];
const tries = [];
for (const mode of ["cors", "no-cors"])
  for (const kind of kinds)
    tries.push(fetch(url, {method: "POST", mode, headers: {"content-type": kind}, body: record})
      .then(reply => reply.status, () => "refused"));
Promise.all(tries).then(answer);
"""
OWN = """
const [url, record, answer] = arguments;
const headers = {
  "content-type": "application/json",
  "authorization": "Basic " + localStorage.getItem("prefect-password"),
};
fetch(url, {method: "POST", headers, body: record})
  .then(reply => answer(reply.status), () => answer("refused"));
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Prefect's and MLflow's servers as ``astra ui`` starts them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("hostile")
        patch.chdir(folder)
        patch.setenv("PREFECT_HOME", str(folder / ".prefect"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.setenv("PREFECT_API_AUTH_STRING", auth_string())
        started = []
        try:
            started.append(services.prefect_server(_free_port()))
            started.append(services.mlflow_server(_free_port()))
            services.remember(started)
            services.wait_until_ready(started[0], "/api/health", timeout_s=240)
            services.wait_until_ready(started[1], "/health", timeout_s=240)
            yield started
        finally:
            services.stop(started)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, in which the attacker's name leads to this machine."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("needs Chromium: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    window.set_script_timeout(60)
    yield window
    window.quit()


@pytest.fixture(scope="module")
def hostile_port(tmp_path_factory):
    """Where the attacker's page lies."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>hostile</title>", encoding="utf-8")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _send(service, method, path, record=None, *, headers=()):
    """Status and answer of one request; ``Host`` is what the headers say."""
    port = int(service.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    own = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json"}
    body = None if record is None else json.dumps(record)
    connection.request(method, path, body, {**own, **dict(headers)})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply, text


def _pools(service):
    found = json.loads(_send(service, "POST", f"{POOLS}filter", {}, headers=header())[1])
    return [pool["name"] for pool in found]


def _experiments(service):
    path = "/api/2.0/mlflow/experiments/search?max_results=10"
    found = json.loads(_send(service, "GET", path, headers=header())[1])
    return [experiment["name"] for experiment in found["experiments"]]


@each_row(
    "headers",
    [
        {},
        {"Authorization": "Basic YXN0cmE6"},
        {"Host": FOREIGN, "with": "string"},
        {"Origin": f"http://{FOREIGN}", "with": "string"},
        {"Origin": "http://127.0.0.1:9", "with": "string"},
        {"Origin": "null", "with": "string"},
        {"Origin": f"http://{FOREIGN}", "Content-Type": "text/plain", "with": "string"},
    ],
)
def test_prefect_refuses_who_has_no_string_and_who_comes_from_elsewhere(servers, headers):
    known = header() if headers.pop("with", None) else {}
    reply, _ = _send(servers[0], "POST", POOLS, POOL, headers={**headers, **known})

    assert reply.status in {400, 401, 403}
    assert reply.headers["access-control-allow-origin"] is None
    assert "taken" not in _pools(servers[0])


def test_prefect_promises_nothing_to_another_page(servers):
    asks = {"Origin": f"http://{FOREIGN}", "Access-Control-Request-Method": "POST"}
    reply, _ = _send(servers[0], "OPTIONS", POOLS, headers=asks)

    assert reply.headers["access-control-allow-origin"] is None


@each_row(
    "headers",
    [
        {},
        {"Authorization": "Basic YXN0cmE6"},
        {"Host": FOREIGN, "with": "string"},
        {"Origin": f"http://{FOREIGN}", "with": "string"},
        {"Origin": "http://127.0.0.1:9", "with": "string"},
        {"Origin": f"http://{FOREIGN}", "Content-Type": "text/plain", "with": "string"},
    ],
)
def test_mlflow_refuses_who_has_no_string_and_who_comes_from_elsewhere(servers, headers):
    known = header() if headers.pop("with", None) else {}
    reply, _ = _send(servers[1], "POST", EXPERIMENTS, EXPERIMENT, headers={**headers, **known})

    assert reply.status in {400, 401, 403}
    assert "taken" not in _experiments(servers[1])


@each_row("name", ["127.0.0.1", FOREIGN])
def test_a_hostile_page_makes_nothing(servers, browser, hostile_port, name):
    browser.get(f"http://{name}:{hostile_port}/")
    assert "hostile" == browser.title
    of_prefect = browser.execute_async_script(ATTACK, servers[0].url + POOLS, json.dumps(POOL))
    of_mlflow = browser.execute_async_script(
        ATTACK, servers[1].url + EXPERIMENTS, json.dumps(EXPERIMENT)
    )

    # A page may send what it cannot read the answer of; then the status it sees is 0.
    assert {"refused", 0} >= {*of_prefect, *of_mlflow}
    assert "taken" not in _pools(servers[0])
    assert "taken" not in _experiments(servers[1])


def test_a_name_that_leads_here_opens_no_door(servers, browser):
    for service, path, record in ((servers[0], POOLS, POOL), (servers[1], EXPERIMENTS, EXPERIMENT)):
        port = service.url.rpartition(":")[2]
        browser.get(f"http://{FOREIGN}:{port}/")
        statuses = browser.execute_async_script(ATTACK, path, json.dumps(record))

        assert {400, 401, 403, "refused", 0} >= set(statuses)
    assert "taken" not in _pools(servers[0])
    assert "taken" not in _experiments(servers[1])


@each_row("name", ["127.0.0.1", "localhost"])
def test_prefects_page_shows_what_its_server_knows(servers, browser, name):
    service = servers[0]
    flow = json.loads(_send(service, "POST", "/api/flows/", {"name": "f"}, headers=header())[1])
    run = {"flow_id": flow["id"], "name": f"amber{name.replace('.', '')}"}
    run["state"] = {"type": "COMPLETED"}  # the page shows none that never began
    _send(service, "POST", "/api/flow_runs/", run, headers=header())
    browser.get(login_link(service.url.replace("127.0.0.1", name)))
    _wait_for(lambda: "/astra-login" not in browser.current_url)
    browser.get(f"{service.url.replace('127.0.0.1', name)}/runs")

    _wait_for(lambda: run["name"] in _text(browser))
    assert auth_string() not in browser.current_url


def test_our_own_page_may_do_what_another_may_not(servers, browser):
    browser.get(login_link(servers[0].url))
    _wait_for(lambda: "/astra-login" not in browser.current_url)
    mine = json.dumps(POOL | {"name": "mine"})

    assert 201 == browser.execute_async_script(OWN, POOLS, mine)
    assert "mine" in _pools(servers[0])


def test_mlflows_page_shows_what_its_server_knows(servers, browser):
    _send(servers[1], "POST", EXPERIMENTS, {"name": "amber-experiment"}, headers=header())
    browser.get(login_link(servers[1].url, "#/experiments"))

    _wait_for(lambda: "amber-experiment" in _text(browser))
    assert auth_string() not in browser.current_url


def test_without_the_link_prefects_page_asks_and_shows_nothing(servers, browser):
    browser.get(servers[0].url)
    browser.execute_script("localStorage.clear()")
    browser.get(f"{servers[0].url}/runs")

    _wait_for(lambda: browser.find_elements("css selector", "input[type=password]"))
    assert "amber" not in _text(browser)


def test_the_string_is_in_no_log_and_on_no_command_line(servers):
    import psutil

    secret = auth_string().partition(":")[2]
    kept_in = [
        path.as_posix()
        for root in (services.LOGS.parent, services.LOGS.parent.parent / ".prefect")
        for path in root.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    lines = [
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    ]

    assert [FILE.as_posix()] == kept_in
    assert not any(secret in line for line in lines)


def _text(browser):
    """What the page shows; in one step, since a page that is still loading replaces its body."""
    return browser.execute_script("return document.body ? document.body.innerText : ''")


def _wait_for(happened, timeout_s=300.0):
    end = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
