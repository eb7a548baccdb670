"""Which Prefect server a command uses, and the credentials for it."""

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.servers.access import HOSTS, auth_string, client_variables, header, tracking_variables
from flows.servers.services import MLFLOW, PREFECT, Service, ServiceError, answers, service_named


def api_url() -> str | None:
    """The address of the known Prefect server: ``PREFECT_API_URL``, or the one we started."""
    named = os.environ.get("PREFECT_API_URL")
    if named:
        return checked_address(named)
    own = service_named(PREFECT)
    return f"{own.url}/api" if own is not None and answers(f"{own.url}/api/health") else None


def checked_address(url: str) -> str:
    """The address unchanged, if it can be that of a Prefect server.

    Raises ConfigurationError if ``PREFECT_API_URL`` holds something else.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isascii() or any(letter.isspace() for letter in url):
        msg = (
            "PREFECT_API_URL must be an address such as http://127.0.0.1:4200/api, "
            f"got {excerpt(url)}; unset it to use this project's own server"
        )
        raise ConfigurationError(msg)
    return url


def require_api_url() -> str:
    """The address of a Prefect server that answers. Raises ServiceError if there is none."""
    url = api_url()
    if url is None or not answers(f"{url}/health"):
        place = f"at {url}" if url else "on this machine"
        msg = f"a Prefect server must answer {place}, got none; start one with 'astra ui'"
        raise ServiceError(msg)
    return url


def client_environment(url: str | None = None) -> dict[str, str]:
    """The environment variables for a client of a Prefect server that answers.

    ``url``: the address of its API; by default that of ``api_url``.

    Raises ServiceError if there is no server, or it rejects us.
    """
    url = url or require_api_url()
    if own_server(url) is not None:
        return client_variables(url, auth_string())
    if not os.environ.get("PREFECT_API_KEY") and not _lets_in(url, header()):
        msg = (
            f"the Prefect server at {url} must accept PREFECT_API_AUTH_STRING, got a refusal; "
            "'astra ui --env' in its project's folder prints it"
        )
        raise ServiceError(msg)
    return {"PREFECT_API_URL": url}


def own_server(url: str, name: str = PREFECT) -> Service | None:
    """The running server of ``astra ui`` with this name, if the address leads to it."""
    found, asked = service_named(name), urlsplit(url)
    if found is None or asked.hostname not in HOSTS or asked.port != urlsplit(found.url).port:
        return None
    return found


def own_tracking_variables() -> dict[str, str]:
    """The login for ``MLFLOW_TRACKING_URI``, where that leads to the server of ``astra ui``."""
    named = os.environ.get("MLFLOW_TRACKING_URI", "")
    try:
        is_own = named.startswith("http") and own_server(named, MLFLOW) is not None
    except ValueError:  # no address; who uses it says so
        return {}
    return tracking_variables(auth_string()) if is_own else {}


def _lets_in(url: str, headers: Mapping[str, str]) -> bool:
    """Whether the Prefect server with this API accepts these headers."""
    request = urllib.request.Request(f"{url}/admin/version", headers=dict(headers))  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - an address of http
    except urllib.error.HTTPError as error:
        return error.code not in {401, 403}
    except (OSError, urllib.error.URLError):
        return True  # a missing or slow server is reported elsewhere
    return True
