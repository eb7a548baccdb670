"""Commands that serve the pages and run scheduled flows."""

from functools import partial
from typing import Annotated

import typer

from tasks.machine.console import say
from tasks.machine.ports import MLFLOW_PORT, PREFECT_PORT

port = partial(typer.Option, min=1, max=65_535)


def ui(
    prefect_port: Annotated[int, port(help="Port of Prefect's pages.")] = PREFECT_PORT,
    mlflow_port: Annotated[int, port(help="Port of MLflow's pages.")] = MLFLOW_PORT,
    worker: Annotated[bool, typer.Option(help="Also run scheduled flows.")] = False,
    detach: Annotated[bool, typer.Option(help="Leave the servers running.")] = False,
    stop: Annotated[bool, typer.Option(help="Stop servers left running.")] = False,
    login: Annotated[bool, typer.Option(help="Print the link that logs a browser in.")] = False,
    env: Annotated[bool, typer.Option(help="Print shell variables for 'prefect'.")] = False,
) -> None:
    """Serve Prefect's and MLflow's pages on this machine, until Ctrl-C."""
    from flows.servers.pages import serve_pages, stop_pages, tell_environment, tell_login

    if stop:
        stop_pages()
    elif login:
        tell_login()
    elif env:
        tell_environment()
    else:
        serve_pages(
            prefect_port=prefect_port, mlflow_port=mlflow_port, worker=worker, detach=detach
        )


def deploy() -> None:
    """Register the schedules of prefect.yaml with the running Prefect server."""
    from flows.orchestration.deployment import deploy_all

    for line in deploy_all():
        say(line)


def worker() -> None:
    """Run scheduled flows, until Ctrl-C."""
    from flows.orchestration.deployment import run_worker

    raise typer.Exit(run_worker())
