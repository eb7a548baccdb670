from importlib.metadata import entry_points

from flows.servers.mlflow_pages import APP_NAME


def test_mlflow_finds_the_application_by_its_name():
    (found,) = entry_points(group="mlflow.app", name=APP_NAME)

    assert "flows.servers.mlflow_pages:create_app" == found.value
