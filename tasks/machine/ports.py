"""The ports of Prefect's and MLflow's pages on this machine, unless ``astra ui`` names others."""

PREFECT_PORT = 4200
MLFLOW_PORT = 5000
MLFLOW_PAGES = f"http://127.0.0.1:{MLFLOW_PORT}"
