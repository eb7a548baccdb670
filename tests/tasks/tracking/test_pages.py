from tasks.tracking.pages import run_page, runs_page


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
