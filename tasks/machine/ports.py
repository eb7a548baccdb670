"""Where Prefect's and MLflow's pages are on this machine, unless ``astra ui`` names other ports."""

from pathlib import Path

PREFECT_PORT = 4200
MLFLOW_PORT = 5000
MLFLOW_SERVER = "mlflow-server"
SERVICES = Path(".astra/services.json")  # the servers that it has started, with their addresses
