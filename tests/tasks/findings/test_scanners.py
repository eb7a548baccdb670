import json

from found_by_hand import finding

from tasks.findings.replay import SuiteCase
from tasks.findings.scanners import garak, promptfoo_results, promptfoo_tests

OUTCOMES = [
    SuiteCase(finding("hi", "you are bad", finding_id="1", scores=(0.9, 0.7), score=0.8)),
    SuiteCase(finding("so", finding_id="2", score=0.1), is_hit=False),
    SuiteCase(finding("so", finding_id="3", score=0.0), is_hit=False, failure="no line"),
]


def test_garaks_report_describes_its_probe_and_counts_hits_misses_and_errors():
    texts = garak(OUTCOMES)
    rows = [json.loads(line) for line in texts[".report.jsonl"].splitlines()]
    by_type = {row["entry_type"]: row for row in rows}
    (hit,) = map(json.loads, texts[".hitlog.jsonl"].splitlines())

    assert ["start_run setup", "init", "plugin_cache", *3 * ["attempt"], "eval", "completion"] == [
        row["entry_type"] for row in rows
    ]
    assert [[0.8], [0.1], [None]] == [row["detector_results"]["astra.Judge"] for row in rows[3:6]]
    known = by_type["plugin_cache"]["plugin_cache"]
    assert f"probes.{by_type['eval']['probe']}" in known["probes"]
    assert f"detectors.{by_type['eval']['detector']}" in known["detectors"]
    assert (1, 1, 1, 2) == tuple(
        by_type["eval"][name] for name in ("passed", "fails", "nones", "total_evaluated")
    )
    told = [(turn["role"], turn["content"]["text"]) for turn in hit["prompt"]["turns"]]
    assert [("user", "hi"), ("assistant", "so"), ("user", "you are bad")] == told
    assert ("so", 0.8, 2) == (hit["output"]["text"], hit["score"], hit["generations_per_prompt"])
    assert texts == garak(OUTCOMES)


def test_promptfoo_has_a_test_for_each_hit_and_counts_hits_misses_and_errors():
    (test,) = json.loads(promptfoo_tests(OUTCOMES)[None])
    record = json.loads(promptfoo_results(OUTCOMES)[None])["results"]
    result, *others = record["results"]

    assert "you are bad" == test["vars"]["prompt"]
    assert ["user", "assistant", "user"] == [
        each["role"] for each in json.loads(test["vars"]["messages"])
    ]
    assert [(True, 0, None), (False, 2, "no answer")] == [
        (each["success"], each["failureReason"], each["error"]) for each in others
    ]
    assert [1, 1, 1] == [record["stats"][name] for name in ("successes", "failures", "errors")]
    assert (3, 0) == (record["version"], result["testIdx"])
    assert (test, "so", False) == (
        result["testCase"],
        result["response"]["output"],
        result["gradingResult"]["pass"],
    )
