"""Which addresses may be attacked: loopback always, any other host only if it is authorised.

The address is parsed strictly, by one pattern, so that the host checked here is the one that a
client connects to.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from pydantic import Field

from astra_core.config import Section
from astra_core.errors import AuthorizationError
from astra_core.errors.exception_text import excerpt

_ADDRESS = re.compile(r"https?://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?(/[\w.~/%-]*)?")


class Authorization(Section):
    """Who is responsible for the target, and at which hosts it may be attacked."""

    owner: str = Field(min_length=1, description="Who owns the model and agreed to the test.")
    note: str = Field(min_length=1, description="The agreement: a ticket, a contract, a mail.")
    hosts: tuple[str, ...] = Field(min_length=1, description="Exact host names, without port.")


def check_address(
    address: str, authorization: Authorization | None, *, subject: str = "endpoint: base_url"
) -> bool:
    """True for an address on this machine, False for another that is authorised; opens no socket.

    ``authorization``: names hosts other than this machine; None for none.

    Raises AuthorizationError if it is no plain address, has no such port, or is not authorised.
    """
    if not _ADDRESS.fullmatch(address):
        # Neither user nor query is shown, as there might be a password in it.
        shown = excerpt(re.sub(r"([?#]).+", r"\1***", address.rpartition("@")[2], flags=re.DOTALL))
        msg = (
            f"{subject} must be http(s)://host[:port][/path] without user or "
            f"query, got {shown}; put a key into key_env or key_file"
        )
        raise AuthorizationError(msg)
    try:
        port = urlsplit(address).port
    except ValueError:
        port = 0
    if port == 0:
        msg = f"{subject} must name a port from 1 to 65535, got {excerpt(address)}"
        raise AuthorizationError(msg)
    host = (urlsplit(address).hostname or "").lower()
    if is_loopback(host):
        return True
    allowed = [each.lower() for each in authorization.hosts] if authorization else []
    if host not in allowed:
        msg = (
            f"{subject.partition(':')[0]}: authorization must name the host {host}, got "
            f"{allowed or 'none'}; "
            "ask only what you may: authorization: {owner: ..., note: ..., hosts: [" + host + "]}"
        )
        raise AuthorizationError(msg)
    return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: ``localhost`` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
