"""Access to the servers that we start: only for those who can read the owner's secret.

Every user of the machine and every page in a browser can reach a server on 127.0.0.1. So each
server requires a secret: a temporary server has its own, and that of ``astra ui`` has the
project's, in a file that only the owner can read. So has MLflow's server: who can write to the
registry decides what the owner loads from it.
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
    """The project's secret, as ``user:password``; generated on first use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.is_file():
        _write_once(new_auth_string(), path)
    path.chmod(0o600)
    return path.read_text(encoding="utf-8").strip()


def new_auth_string() -> str:
    """A new random secret; safe in a URL."""
    return f"astra:{secrets.token_urlsafe(32)}"


def server_variables(url: str, auth: str) -> dict[str, str]:
    """The environment variables of Prefect's server at a URL without a path."""
    return {
        # Relative, so that the pages work under every name of this machine.
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": url,
        "PREFECT_SERVER_API_AUTH_STRING": auth,
        # If it were kept in memory, a restart would forget which run holds which slot.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
        "PREFECT__SERVER_FINAL": "1",
        **client_variables(f"{url}/api", auth),
    }


def client_variables(api_url: str, auth: str) -> dict[str, str]:
    """The environment variables with which a client uses the server whose API has this address."""
    return {"PREFECT_API_URL": api_url, "PREFECT_API_AUTH_STRING": auth}


def tracking_variables(auth: str) -> dict[str, str]:
    """The environment variables with which MLflow's client may use a server."""
    user, _, password = auth.partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}


def header() -> dict[str, str]:
    """The HTTP header with these credentials."""
    auth = os.environ.get("PREFECT_API_AUTH_STRING")
    if not auth:
        return {}
    return {"Authorization": basic(auth)}


def basic(auth: str) -> str:
    """The value of the HTTP header ``Authorization`` for a secret."""
    return f"Basic {base64.b64encode(auth.encode()).decode()}"


def login_link(address: str, page: str = "") -> str:
    """A link that logs a browser in; the part after ``#`` never leaves the browser."""
    return f"{address}{LOGIN}#{auth_string()}{page}"


def _write_once(auth: str, path: Path) -> None:
    """Writes the file atomically, readable only by its owner; an existing file stays."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{auth}\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        # Another process wrote it first; both use its secret.
        pass
    finally:
        draft.unlink(missing_ok=True)
