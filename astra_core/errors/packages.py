"""Optional packages, each of which an extra of this one installs."""

from importlib.util import find_spec

from astra_core.errors import ConfigurationError


def require_package(name: str, *, subject: str, extra: str, otherwise: str = "") -> None:
    """Checks that an optional package is installed.

    ``otherwise``: another way out, if there is one.

    Raises ConfigurationError if it is not; the message says how to install it.
    """
    if find_spec(name) is None:
        msg = (
            f"{subject} must have the package {name}, got none; install it with "
            f"python -m pip install 'astra-red-team[{extra}]'{otherwise}"
        )
        raise ConfigurationError(msg)
