"""Who may use the Prefect servers that we start: those who can read a file of this project's owner.

A server on 127.0.0.1 can be reached by every user of the machine and by every page that a browser
shows. So each server asks for a string: the one that lives as long as a run has one of its own, and
the one of ``astra ui`` has the project's, in a file for the owner alone.
"""

import base64
import os
import secrets
from pathlib import Path

FILE = Path(".astra/prefect_auth")
LOGIN = "/astra-login"
HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
LEASES = "prefect.server.concurrency.lease_storage.filesystem"


def auth_string(path: Path = FILE) -> str:
    """The project's string, as ``user:password``; made when it is asked for first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.is_file():
        _write_once(new_auth_string(), path)
    path.chmod(0o600)
    return path.read_text(encoding="utf-8").strip()


def new_auth_string() -> str:
    """Another string that nobody can guess; safe in an address."""
    return f"astra:{secrets.token_urlsafe(32)}"


def server_variables(url: str, auth: str) -> dict[str, str]:
    """What Prefect's server at an address without path must find in its environment."""
    return {
        "PREFECT_API_URL": f"{url}/api",
        # Relative, so that the pages work under every name of this machine.
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": url,
        "PREFECT_SERVER_API_AUTH_STRING": auth,
        # In memory, a restart would forget which run holds which slot.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
        "PREFECT__SERVER_FINAL": "1",
        **client_variables(auth),
    }


def client_variables(auth: str) -> dict[str, str]:
    """What a client must find in its environment to be let in."""
    return {"PREFECT_API_AUTH_STRING": auth}


def header() -> dict[str, str]:
    """The same for a request of our own."""
    auth = os.environ.get("PREFECT_API_AUTH_STRING")
    if not auth:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"}


def login_link(address: str) -> str:
    """A link that logs a browser in; what follows ``#`` never leaves the browser."""
    return f"{address}{LOGIN}#{auth_string()}"


def _write_once(auth: str, path: Path) -> None:
    """Leaves a whole file, readable by the owner alone from its first byte; the first one stays."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{auth}\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        # Another process was faster; both go on with its string.
        pass
    finally:
        draft.unlink(missing_ok=True)
