"""Packages that a sink needs and this package does not install by itself."""

from importlib.util import find_spec

from astra_core.errors import ConfigurationError


def require_package(name: str) -> None:
    """Returns if an optional package, named as its extra, is installed.

    Raises:
        ConfigurationError: It is not; says how to install it.
    """
    if find_spec(name) is None:
        msg = (
            f"tracking.sinks: {name} must have the package {name}, got none; install it with "
            f"python -m pip install -e '.[{name}]' or remove the name"
        )
        raise ConfigurationError(msg)
