import json

from tasks.tracking.pages import run_page, runs_page, share_view


class _Client:
    def __init__(self):
        self.tags = {}

    def set_experiment_tag(self, experiment_id, key, value):
        self.tags[experiment_id, key] = json.loads(value)


def test_the_view_of_the_link_is_kept_with_its_experiment():
    client = _Client()
    share_view(client, "7")
    ((experiment, key), view), *_ = client.tags.items()

    assert "7" == experiment
    assert runs_page("7").endswith(
        f"viewStateShareKey={key.removeprefix('mlflow.sharedViewState.')}"
    )
    assert "metrics.`final/attack_success_rate`" == view["selectedColumns"][0]
    (section,) = view["compareRunSections"]
    assert {section["uuid"]} == {chart["metricSectionId"] for chart in view["compareRunCharts"]}
    # MLflow keeps at most so many letters of a tag of an experiment.
    assert 5000 > len(json.dumps(view))


def test_links_lead_to_the_classic_page_of_runs_and_to_what_a_run_keeps():
    server = "http://127.0.0.1:5000"

    assert (
        f"{server}/#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=astra"
        == runs_page("7", server=server)
    )
    assert "/#/experiments/7/runs/ab" == run_page("7", "ab")
    assert "/#/experiments/7/runs/ab/artifacts/report.html" == run_page(
        "7", "ab", artifact="report.html"
    )
