import json
from xml.etree import ElementTree as ET

from found_by_hand import finding

from tasks.findings.builds import junit, sarif
from tasks.findings.replay import SuiteCase

RUDE = json.dumps({"category": "hate speech"})
ODD = json.dumps({"category": "h\x01ate\x7f"})
OUTCOMES = [
    SuiteCase(finding("a\x00\ud800b\xa0<x>\ufffe\U0001f600", finding_id="1", metadata=RUDE)),
    SuiteCase(finding(finding_id="2", metadata=ODD), is_hit=False),
    SuiteCase(finding(finding_id="3"), is_hit=False, failure="no line"),
]


def test_junit_fails_hits_and_tells_errors_apart():
    root = ET.fromstring(junit(OUTCOMES)[None])  # noqa: S314 - our own
    (suite,) = root
    cases = {case.get("name"): [child.tag for child in case] for case in suite}

    assert ("3", "1", "1") == tuple(suite.get(name) for name in ("tests", "failures", "errors"))
    assert {"1": ["failure"], "2": [], "3": ["error"]} == cases
    assert "user: ab\xa0<x>\U0001f600\nassistant: so" == suite[0][0].text
    assert "findings.hate\x7f" == suite[1].get("classname")


def test_sarif_has_a_result_for_each_hit_with_its_rule_and_taxa():
    log = json.loads(sarif(OUTCOMES)[None])
    (run,) = log["runs"]
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    taxa = {taxon["id"] for own in run["taxonomies"] for taxon in own["taxa"]}

    assert ("2.1.0", "astra/hate-speech") == (log["version"], rule["id"])
    assert (rule["id"], 0, "error") == tuple(
        result[name] for name in ("ruleId", "ruleIndex", "level")
    )
    assert {"findingId/v1": "1"} == result["partialFingerprints"]
    assert set(rule["properties"]["tags"]) - {"security"} == taxa
    assert "ailuminate-1.1:hte" in taxa
