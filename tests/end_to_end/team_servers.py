"""What deploy/compose.yaml starts, without containers: commands and variables are read from there.

Postgres is Debian's. In the place of MinIO stands moto's server, which speaks S3 too. What servers
and clients need beside the lock is what the image has, deploy/requirements.lock.
"""

import http.client
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import yaml
from project import ROOT
from real_servers import python_with
from tinker_server import free_port

DEPLOY = ROOT / "deploy"
MOTO = (
    *("moto==5.2.5", "boto3==1.43.117", "s3transfer==0.19.3", "responses==0.26.3"),
    *("xmltodict==1.0.4", "py-partiql-parser==0.6.3"),
)
SECRETS = {
    "POSTGRES_PASSWORD": "first1",
    "PREFECT_DATABASE_PASSWORD": "second2",
    "MLFLOW_DATABASE_PASSWORD": "third3",
    "MLFLOW_TRACKING_PASSWORD": "seventh7",
    "PREFECT_API_AUTH_STRING": "user:fourth4",
}
KEYS = {"AWS_ACCESS_KEY_ID": "fifth5", "AWS_SECRET_ACCESS_KEY": "sixth6"}
START_S = 300.0


@dataclass(frozen=True)
class Team:
    """Servers that run.

    Attributes:
        variables: Of the environment of those who use them.
        artifacts: The folder in which MLflow's server keeps them.
        s3: The address of the store.
        postgres: Variables of psql's, for the superuser.
    """

    variables: dict[str, str]
    artifacts: Path
    s3: str
    postgres: dict[str, str]

    def count(self, database: str, table: str) -> int:
        """Rows of a table."""
        # A table of the tests' own choice, in a database of their own.
        command = ["psql", "-At", "-d", database, "-c", f"SELECT count(*) FROM {table}"]  # noqa: S608
        said = subprocess.check_output(command, env={**os.environ, **self.postgres}, text=True)
        return int(said)


def postgres_folder() -> Path | None:
    """Where initdb and postgres are; None where they are not installed."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return Path(found).resolve().parent if found else (places[-1].parent if places else None)


@contextmanager
def team_servers(folder: Path) -> Iterator[Team]:
    """Postgres with its databases, Prefect's server, MLflow's server and a store with a bucket."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    beside = _packages()
    with ExitStack() as stack:
        postgres = stack.enter_context(_postgres(folder, stack))
        named = {**os.environ, **postgres, **SECRETS}
        subprocess.run([DEPLOY / "databases.sh"], env=named, check=True)
        where = f"@127.0.0.1:{postgres['PGPORT']}/"
        artifacts = folder / "artifacts"
        ports = {name: free_port() for name in ("mlflow", "prefect", "s3")}
        given = {"--host": "127.0.0.1", "--artifacts-destination": str(artifacts)}
        for name, path in (("mlflow", "/health"), ("prefect", "/api/health")):
            given |= {"--port": str(ports[name])}
            given |= {"--allowed-hosts": f"127.0.0.1:{ports[name]}"}
            command = _with(services[name]["command"], given)
            variables = {
                key: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda m: SECRETS[m[1]], str(value))
                for key, value in services[name]["environment"].items()
            }
            variables = {key: v.replace("@postgres/", where) for key, v in variables.items()}
            variables |= {"PYTHONPATH": beside, "PREFECT_HOME": str(folder / "prefect")}
            stack.enter_context(_started(folder, name, command, variables))
            _await(f"http://127.0.0.1:{ports[name]}{path}")
        s3 = f"http://127.0.0.1:{ports['s3']}"
        moto = ["python", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["s3"])]
        stack.enter_context(_started(folder, "s3", moto, {"PYTHONPATH": beside}))
        _await(f"{s3}/dvc", method="PUT")
        users = {
            **KEYS,
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{ports['mlflow']}",
            "MLFLOW_TRACKING_USERNAME": "astra",
            "MLFLOW_TRACKING_PASSWORD": SECRETS["MLFLOW_TRACKING_PASSWORD"],
            "PREFECT_API_URL": f"http://127.0.0.1:{ports['prefect']}/api",
            "PREFECT_API_AUTH_STRING": SECRETS["PREFECT_API_AUTH_STRING"],
            "PYTHONPATH": beside,
        }
        yield Team(users, artifacts, s3, postgres)


def _packages() -> str:
    """The folder with the packages of the image that are not in the lock, and moto."""
    lines = (DEPLOY / "requirements.lock").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    python = python_with("team", ("--no-deps", *pins, *MOTO))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(python).parents[1] / "lib" / version / "site-packages")


def _with(command: list[str], given: dict[str, str]) -> list[str]:
    """The command with its options set to what is given, of those that it has."""
    words = []
    for word in command:
        name, _, _ = word.partition("=")
        if name in given and "=" in word:
            words.append(f"{name}={given[name]}")
        elif words and words[-1] in given and "=" not in words[-1]:
            words.append(given[words[-1]])
        else:
            words.append(word)
    return words if "--port" in " ".join(words) else [*words, "--port", given["--port"]]


@contextmanager
def _postgres(folder: Path, stack: ExitStack) -> Iterator[dict[str, str]]:
    """A cluster of databases of its own; the variables by which psql finds it."""
    binaries, port = postgres_folder(), free_port()
    # Whoever it runs as must be able to get there, and may not be who runs the tests.
    place = Path(stack.enter_context(TemporaryDirectory()))
    (place / "password").write_text(SECRETS["POSTGRES_PASSWORD"])
    owner = {}
    if os.geteuid() == 0:  # as whom it refuses to run
        owner = {"user": "postgres", "group": "postgres"}
        shutil.chown(place, **owner)
        shutil.chown(place / "password", **owner)
    data = place / "data"
    create = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256"]
    create += ["--pwfile", place / "password", "--no-sync"]
    subprocess.run(create, check=True, capture_output=True, cwd=place, **owner)
    command = [binaries / "postgres", "-D", data, "-p", str(port), "-k", place]
    command += ["-c", "listen_addresses=127.0.0.1"]
    with (folder / "postgres.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, **owner)
    found = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGUSER": "postgres",
        "PGPASSWORD": SECRETS["POSTGRES_PASSWORD"],
    }
    try:
        ask = ["psql", "-d", "postgres", "-c", "select 1"]
        known = {"env": {**os.environ, **found}, "capture_output": True}
        _until(lambda: subprocess.run(ask, check=False, **known).returncode == 0)
        yield found
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _started(
    folder: Path, name: str, command: list[str], variables: dict[str, str]
) -> Iterator[None]:
    """A server, as a program of this environment; ended with all that it started."""
    program = [str(Path(sys.executable).parent / command[0]), *command[1:]]
    environment = {**os.environ, **variables}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            program, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def _await(url: str, method: str = "GET") -> None:
    """Returns when the address answers with 200."""
    parts = urlsplit(url)

    def answers() -> bool:
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        try:
            connection.request(method, parts.path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    _until(answers)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)
