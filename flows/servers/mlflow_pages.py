"""MLflow's application behind our guard; ``mlflow server --app-name astra`` serves it.

MLflow's own check rejects pages of other machines, but accepts those of any program on any port of
this machine.
"""

from fastapi import FastAPI

from flows.servers.guard import guard

APP_NAME = "astra"


def create_app() -> FastAPI:
    """The guarded application; MLflow finds it by the entry point in ``pyproject.toml``."""
    from mlflow.server import fastapi_app

    app: FastAPI = fastapi_app.app
    guard(app)
    return app
