"""``astra serve`` and ``astra serve-jobs``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from astra_core.errors.packages import require_package
from astra_core.paths import closed_above, found_at
from tasks.machine.console import say

if TYPE_CHECKING:
    from socket import socket

    from fastapi import FastAPI

    from tasks.params.schema import Params

TOKEN = "ASTRA_SERVE_TOKEN"  # noqa: S105 - the name of a variable
SERVED = Path(".astra/served")
JOBS = Path(".astra/jobs")
_FAREWELL_S = 3  # for a client that has sent half of its request

Models = Annotated[
    list[str] | None, typer.Argument(help="champion, a version's number, a folder, or NAME=FOLDER.")
]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")]
Host = Annotated[str, typer.Option(help="An address other than 127.0.0.1 needs a token.")]


def serve(
    models: Models = None,
    *,
    port: Port = 8000,
    host: Host = "127.0.0.1",
    as_attacker: Annotated[
        bool, typer.Option(help="Chats are a prompt, then probes and a target's replies.")
    ] = False,
) -> None:
    """Serve models by the OpenAI interface, until Ctrl-C."""
    params, token = _begin(host)
    listener = listen(host, port)
    folders = model_folders(models or ["champion"], params)
    from tasks.serving.inference import Speakers, add_inference
    from tasks.serving.talking import attacker_in
    from tasks.serving.wire import make_app

    if as_attacker:
        for folder in folders.values():
            attacker_in(folder)
    app = make_app("astra serve", token=token)
    separator = params.system.separator
    add_inference(app, Speakers(lambda: folders, separator=separator, are_attackers=as_attacker))
    run_server(app, listener, told=f"serves {', '.join(folders)}")


def serve_jobs(
    models: Models = None,
    *,
    folder: Annotated[Path, typer.Option(help="Folder of files, jobs and their models.")] = JOBS,
    port: Port = 8001,
    host: Host = "127.0.0.1",
    job_limit_s: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds after its creation at which an open job fails."),
    ] = None,
) -> None:
    """Serve fine-tuning jobs, and the models they make, by the OpenAI interface, until Ctrl-C."""
    params, token = _begin(host)
    require_package("python_multipart", subject="serve-jobs", extra="serve")
    if closed_above(folder) is not None:
        msg = f"--folder must be a folder to write to, got {found_at(folder)}; name another"
        raise ConfigurationError(msg)
    listener = listen(host, port)
    folders = model_folders(models or ["champion"], params)
    from flows.servers.job_keeper import JobKeeper
    from tasks.serving.fine_tuning.api import JobService, add_fine_tuning
    from tasks.serving.fine_tuning.store import JobStore
    from tasks.serving.inference import Speakers, add_inference
    from tasks.serving.wire import make_app

    service = JobService(
        JobStore(folder.resolve()),
        folders,
        training=params.training.model_dump(mode="json"),
        system=system_of(params),
    )
    app = make_app("astra serve-jobs", token=token)
    add_inference(app, Speakers(service.folders, separator=params.system.separator))
    add_fine_tuning(app, service)
    keeper = JobKeeper(folder.resolve(), limit_s=job_limit_s)
    keeper.start()
    try:
        run_server(app, listener, told=f"trains from {', '.join(folders)}")
    finally:
        keeper.stop()


def _begin(host: str) -> "tuple[Params, str | None]":
    """The parameters, with the environment set, and the token of the server."""
    from flows.servers.access import HOSTS
    from tasks.machine.environment import set_up_process
    from tasks.params.schema import read_params

    token = os.environ.get(TOKEN) or None
    if host not in HOSTS and token is None:
        msg = (
            f"--host must be 127.0.0.1 without a token, got {host!r}; set the variable {TOKEN} to "
            "a secret, which every client then sends as its API key"
        )
        raise ConfigurationError(msg)
    params = read_params()
    set_up_process(params)
    return params, token


def listen(host: str, port: int) -> "socket":
    """A socket that listens there, before anything is loaded.

    Raises ConfigurationError if the address is not this machine's, or the port is taken.
    """
    from socket import create_server

    try:
        return create_server((host, port))
    except OSError as error:
        msg = (
            f"--host and --port must be a free address of this machine, got {host}:{port} "
            f"({error.strerror}); name others, --port 0 takes a free port"
        )
        raise ConfigurationError(msg) from None


def model_folders(places: Sequence[str], params: "Params") -> dict[str, Path]:
    """The folder of each model by the name under which it is served.

    ``places``: an alias or number of a registered version, a folder, or ``NAME=FOLDER``.
    """
    from astra_core.models.folders import require_folder

    found: dict[str, Path] = {}
    for place in places:
        name, is_named, rest = place.partition("=")
        if is_named and not (name and rest):
            msg = f"a model must be named as NAME=FOLDER, got {excerpt(place)}"
            raise ConfigurationError(msg)
        is_folder = is_named or Path(place).exists()
        if not is_named:
            name, rest = (Path(place).resolve().name if is_folder else place), place
        if name in found:
            msg = f"models must have names of their own, got {excerpt(name)} twice; use NAME=FOLDER"
            raise ConfigurationError(msg)
        found[name] = require_folder(rest) if is_folder else _version(place, params)
    return found


def _version(wanted: str, params: "Params") -> Path:
    from tasks.tracking.lineage.parents import copy_version, version_number

    name = params.registration.model_name
    number = version_number(name, wanted) or wanted
    folder = SERVED / f"{name}-{number}"
    copy_version(name, wanted, folder)
    return folder


def system_of(params: "Params") -> Mapping[str, object]:
    """The System settings of a job: the attacker's separator and lengths, without a target."""
    own = params.system.model_dump(mode="json")
    kept = ("separator", "max_context_tokens", "tokens_per_batch")
    scorer = {"name": "phrases", "options": {"phrases": ["x"]}}
    return {**{name: own[name] for name in kept}, "scorer": scorer}


def run_server(app: "FastAPI", listener: "socket", *, told: str) -> None:
    """Serves until Ctrl-C or SIGTERM."""
    import uvicorn

    from flows.servers.access import HOSTS
    from flows.servers.guard import guard

    host, port = listener.getsockname()[:2]
    if host in HOSTS:
        guard(app)
    say(f"http://{host}:{port}/v1 {told}; Ctrl-C stops it")
    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", timeout_graceful_shutdown=_FAREWELL_S
    )
    uvicorn.Server(config).run([listener])
