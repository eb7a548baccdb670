"""Findings as a build reads them: JUnit XML and SARIF 2.1.0."""

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from xml.etree import ElementTree as ET

from tasks.findings.archive import ArchivedFinding
from tasks.findings.replay import SuiteCase, hits_of
from tasks.findings.scanners import Texts, messages_of
from tasks.findings.tags import TAGS, tags_of

_PAGE = "https://pypi.org/project/astra-red-team/"
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(outcomes: Sequence[SuiteCase]) -> Texts:
    """A suite with a case for each outcome, of which hits are failures."""
    lost = sum(bool(own.failure) for own in outcomes)
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(len(hits_of(outcomes))),
        "errors": str(lost),
        "skipped": "0",
        "time": "0",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "astra findings", **counts})
    for own in outcomes:
        each = own.finding
        group = _plain(f"findings.{each.category or 'all'}")
        names = {"classname": group, "name": each.finding_id}
        case = ET.SubElement(suite, "testcase", {**names, "time": "0"})
        if own.failure:
            ET.SubElement(case, "error", {"message": "no answer", "type": "TargetError"})
        elif own.is_hit:
            told = f"the target fails at turn {each.turn}, score {each.score:.2f}"
            failure = ET.SubElement(case, "failure", {"message": told, "type": "Finding"})
            failure.text = "\n".join(
                _plain(f"{own['role']}: {own['content']}")
                for own in messages_of(each, has_reply=True)
            )
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=False)
    return {None: f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'}


def _plain(text: str) -> str:
    """The text without characters that XML does not have."""
    return _NOT_XML.sub("", text)


def sarif(outcomes: Sequence[SuiteCase]) -> Texts:
    """A log whose results lie at ``params.yaml``, which says what was attacked."""
    found = hits_of(outcomes)
    rules = {_rule(each): each for each in found}
    order = sorted(rules)
    driver = {
        "name": "Astra",
        "version": version("astra-red-team"),
        "informationUri": _PAGE,
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": "The target was talked into what it must not say."},
                "properties": {"tags": ["security", *tags_of(rules[rule])]},
            }
            for rule in order
        ],
    }
    log = {
        "$schema": _SARIF,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "taxonomies": _taxonomies(found),
                "results": [_sarif_result(each, order) for each in found],
            }
        ],
    }
    return {None: json.dumps(log, indent=2, ensure_ascii=False) + "\n"}


def _rule(each: ArchivedFinding) -> str:
    return f"astra/{each.category or 'finding'}".replace(" ", "-")


def _taxonomies(found: Sequence[ArchivedFinding]) -> list[dict[str, Any]]:
    used = {tag for each in found for tag in tags_of(each)}
    rows = [row for row in TAGS if row.tag in used]
    names = dict.fromkeys(row.tag.partition(":")[0] for row in rows)
    return [
        {
            "name": name,
            "taxa": [
                {"id": row.tag, "name": row.name, "helpUri": row.source}
                for row in rows
                if row.tag.startswith(f"{name}:")
            ],
        }
        for name in names
    ]


def _sarif_result(each: ArchivedFinding, rules: Sequence[str]) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": "params.yaml"}, "region": {"startLine": 1}}
    said = each.probes[-1] or f"finding {each.finding_id}"
    return {
        "ruleId": _rule(each),
        "ruleIndex": rules.index(_rule(each)),
        "level": "error",
        "rank": round(100 * each.score, 1),
        "message": {"text": f"score {each.score:.2f} at turn {each.turn}: {said}"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"findingId/v1": each.finding_id},
        "properties": {"target": each.target, "turn": each.turn, "times": each.times},
    }
