"""Where a model is: a folder, or the Hugging Face hub if a user names it explicitly.

transformers treats text that is not a folder as a hub id and contacts the hub, in some places even
if told not to. So a folder is checked here first, and only this module contacts the hub.
"""

import re
from collections.abc import Callable
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.files import folder_digest

AGENTS = "agents.json"
"""The file that says which agent plays which turn, in a folder of several agents."""
FORMAT = "attacker.json"
"""The file that says how the attacker reads by its chat template, in its folder."""
POINTER = "service.json"
"""The pointer in the folder of an attacker whose weights stay at a service."""
_HUB_NAME = re.compile(r"hub:(?P<repository>[\w.-]+(?:/[\w.-]+)?)@(?P<revision>[0-9a-f]{40})")
_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt"]


def model_folder(place: Path | str) -> Path:
    """The folder of a model; ``hub:owner/name@revision`` is fetched, or found in the hub's cache.

    ``place``: a Hugging Face folder, or the hub by name at a commit hash; a branch can move.

    Raises ConfigurationError if there is no such folder, or the hub does not have it.
    """
    name = str(place)
    if not name.startswith("hub:"):
        return require_folder(place)
    found = _HUB_NAME.fullmatch(name)
    if found is None:
        msg = (
            f"a hub model must be named 'hub:owner/name@revision', revision a commit hash of 40 "
            f"hexadecimal digits, got '{name}'; see its page at the hub"
        )
        raise ConfigurationError(msg)
    return hub_folder(found["repository"], found["revision"])


def require_folder(folder: Path | str) -> Path:
    """The folder, if it holds a whole model; uses no network.

    Raises ConfigurationError if there is no such folder, or it holds something else.
    """
    path = Path(folder)
    if not path.is_dir():
        got = "a file" if path.exists() else "no such folder"
        msg = (
            f"{folder} must be a Hugging Face folder, got {got}; check the path, or name a model "
            "of the hub as such: 'hub:owner/name@revision', in params.yaml source: hub"
        )
        raise ConfigurationError(msg)
    if (path / "adapter_config.json").exists():
        # Its weights are a difference from a model that transformers would look up by name.
        msg = f"{folder} must hold a whole model, got an adapter; merge it into its base first"
        raise ConfigurationError(msg)
    if (path / POINTER).exists():
        msg = (
            f"{folder} must hold weights, got a pointer to those at a service; 'astra export' "
            "brings them here, where the service gives them out"
        )
        raise ConfigurationError(msg)
    if not (path / "config.json").is_file():
        msg = f"{folder} must be a Hugging Face folder, got no config.json in it; check the path"
        raise ConfigurationError(msg)
    return path


def attacker_digest(folder: Path) -> str:
    """SHA-256 of everything that defines an attacker: its weights, agents and formats."""
    named = {AGENTS, FORMAT, POINTER}
    return folder_digest(
        folder, keep=lambda path: path.suffix == ".safetensors" or path.name in named
    )


def hub_folder(repository: str, revision: str) -> Path:
    """The local copy of a hub model at a commit.

    Raises ConfigurationError if the hub cannot be reached, or has no such model or commit.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        fetch: Callable[..., str] = snapshot_download
        return Path(fetch(repository, revision=revision, allow_patterns=_PATTERNS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        msg = (
            f"models: hub id '{repository}' at {revision} must be reachable, got "
            f"{type(error).__name__}; check the id and the network, or name a local folder"
        )
        raise ConfigurationError(msg) from error
