"""Findings as garak and promptfoo write and read them."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from tasks.findings.archive import ArchivedFinding
from tasks.findings.replay import SuiteCase, hits_of
from tasks.findings.tags import tags_of

_PROBE, _DETECTOR = "atkgen.Astra", "astra.Judge"
_VERSION = f"astra-{version('astra-red-team')}"
_NAMES = uuid.UUID("2b1c6a52-6d0e-4b57-9d37-1f0a4c9d7e11")
_START = "1970-01-01T00:00:00"  # a run's time is not in the archive: equal archives, equal files

Texts = Mapping[str | None, str]
"""Texts of files, by what takes the place of the file's suffix; None is the file itself."""


def lines_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """JSON Lines of these rows."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def messages_of(each: ArchivedFinding, *, has_reply: bool = False) -> list[dict[str, str]]:
    """The conversation up to the last probe, or to the reply after it."""
    told = []
    for probe, reply in zip(each.probes, each.replies, strict=True):
        told += [{"role": "user", "content": probe}, {"role": "assistant", "content": reply}]
    return told if has_reply else told[:-1]


def garak(outcomes: Sequence[SuiteCase]) -> Texts:
    """The report and hit log of garak, whose probe and detector the report itself describes."""
    told, found = [own.finding for own in outcomes], hits_of(outcomes)
    lost = sum(bool(own.failure) for own in outcomes)
    run = str(uuid.uuid5(_NAMES, "".join(each.finding_id for each in told)))
    target = told[0].target[:16] if told else ""
    report: list[dict[str, Any]] = [
        {
            "entry_type": "start_run setup",
            "plugins.target_type": "astra",
            "plugins.target_name": target,
            "transient.active_probes": [f"probes.{_PROBE}"],
        },
        {"entry_type": "init", "garak_version": _VERSION, "start_time": _START, "run": run},
        {"entry_type": "plugin_cache", "plugin_cache": _garak_plugins(told)},
        *(_attempt(own, number) for number, own in enumerate(outcomes)),
        {
            "entry_type": "eval",
            "probe": _PROBE,
            "detector": _DETECTOR,
            "passed": len(told) - len(found) - lost,
            "fails": len(found),
            "nones": lost,
            "total_evaluated": len(told) - lost,
            "total_processed": len(told),
        },
        {"entry_type": "completion", "end_time": _START, "run": run},
    ]
    return {
        ".report.jsonl": lines_of(report),
        ".hitlog.jsonl": lines_of(
            _hit(own, number, run=run) for number, own in enumerate(outcomes) if own.is_hit
        ),
    }


def _garak_plugins(found: Sequence[ArchivedFinding]) -> dict[str, Any]:
    names = {tag for each in found for tag in tags_of(each)}
    own = [tag.removeprefix("garak:") for tag in sorted(names) if tag.startswith("garak:")]
    probe = {"description": "Attackers trained by Astra", "tags": [*own, "owasp:llm01"], "tier": 1}
    judge = {"description": "The judge of Astra's evaluation"}
    return {
        "version": _VERSION,
        "probes": {f"probes.{_PROBE}": probe},
        "detectors": {f"detectors.{_DETECTOR}": judge},
    }


def _attempt(own: SuiteCase, number: int) -> dict[str, Any]:
    each = own.finding
    return {
        "entry_type": "attempt",
        "uuid": _uuid(each),
        "seq": number,
        "status": 2,
        "probe_classname": _PROBE,
        "probe_params": {},
        "targets": [],
        "prompt": _garak_talk(messages_of(each)),
        "outputs": [None if own.failure else _garak_text(each.replies[-1])],
        "detector_results": {_DETECTOR: [None if own.failure else each.score]},
        "notes": {"tags": tags_of(each), "category": each.category},
        "goal": str(each.columns.get("goal") or each.category or "make the target fail"),
        "conversations": [_garak_talk(messages_of(each, has_reply=True))],
        "reverse_translation_outputs": [],
        "intent": None,
    }


def _hit(own: SuiteCase, number: int, *, run: str) -> dict[str, Any]:
    each, attempt = own.finding, _attempt(own, number)
    return {
        "goal": attempt["goal"],
        "prompt": attempt["prompt"],
        "output": attempt["outputs"][0],
        "triggers": None,
        "score": each.score,
        "run_id": run,
        "attempt_id": attempt["uuid"],
        "attempt_seq": number,
        "attempt_idx": 0,
        "generator": f"astra {each.target[:16]}",
        "probe": _PROBE,
        "detector": _DETECTOR,
        "generations_per_prompt": len(each.scores),
    }


def _uuid(each: ArchivedFinding) -> str:
    return str(uuid.uuid5(_NAMES, each.finding_id))


def _garak_text(text: str) -> dict[str, Any]:
    empty = dict.fromkeys(("data_path", "data_type", "data_checksum"))
    return {"text": text, "lang": "*", **empty, "notes": {}}


def _garak_talk(messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    turns = [{"role": own["role"], "content": _garak_text(own["content"])} for own in messages]
    return {"turns": turns, "notes": {}}


def promptfoo_tests(outcomes: Sequence[SuiteCase]) -> Texts:
    """A test for each finding, with the last probe as ``prompt`` and all as ``messages``."""
    tests = [_promptfoo_test(each) for each in hits_of(outcomes)]
    return {None: json.dumps(tests, indent=2, ensure_ascii=False) + "\n"}


def _promptfoo_test(each: ArchivedFinding) -> dict[str, Any]:
    return {
        "description": f"finding {each.finding_id}",
        "vars": {
            "prompt": each.probes[-1],
            "messages": json.dumps(messages_of(each), ensure_ascii=False),
        },
        "metadata": {
            "finding": each.finding_id,
            "category": each.category,
            "score": each.score,
            "tags": tags_of(each),
        },
    }


def promptfoo_results(outcomes: Sequence[SuiteCase]) -> Texts:
    """An evaluation as ``promptfoo import`` reads it, in which every hit is a test that failed."""
    told, hits = [own.finding for own in outcomes], len(hits_of(outcomes))
    lost = sum(bool(own.failure) for own in outcomes)
    passed = len(told) - hits - lost
    provider = {"id": f"astra:{told[0].target[:16]}" if told else "astra", "label": "target"}
    used = {"total": 0, "prompt": 0, "completion": 0, "cached": 0, "numRequests": len(told)}
    metrics = {
        "score": 0,
        "testPassCount": passed,
        "testFailCount": hits,
        "testErrorCount": lost,
        "assertPassCount": passed,
        "assertFailCount": hits,
        "totalLatencyMs": 0,
        "tokenUsage": used,
        "namedScores": {},
        "namedScoresCount": {},
        "cost": 0,
    }
    prompt = {"raw": "{{prompt}}", "label": "{{prompt}}", "id": "astra", "provider": "target"}
    name = str(uuid.uuid5(_NAMES, "".join(each.finding_id for each in told)))
    record = {
        "evalId": f"eval-{name[:8]}-{_START}",
        "results": {
            "version": 3,
            "timestamp": f"{_START}.000Z",
            "prompts": [{**prompt, "metrics": metrics}],
            "results": [
                _promptfoo_result(own, number, provider) for number, own in enumerate(outcomes)
            ],
            "stats": {"successes": passed, "failures": hits, "errors": lost, "tokenUsage": used},
        },
        "config": {"description": "findings of Astra", "prompts": ["{{prompt}}"]},
        "shareableUrl": None,
        "metadata": {"promptfooVersion": "astra", "exportedAt": f"{_START}.000Z"},
    }
    return {None: json.dumps(record, indent=2, ensure_ascii=False) + "\n"}


def _promptfoo_result(own: SuiteCase, number: int, provider: Mapping[str, str]) -> dict[str, Any]:
    each, test = own.finding, _promptfoo_test(own.finding)
    passes = not (own.is_hit or own.failure)
    why = "no answer" if own.failure else f"score {each.score:.2f} by {each.judge}"
    score = 0 if own.failure else 1 - each.score
    return {
        "id": _uuid(each),
        "promptIdx": 0,
        "testIdx": number,
        "testCase": test,
        "promptId": "astra",
        "provider": provider,
        "prompt": {"raw": each.probes[-1], "label": "{{prompt}}"},
        "vars": test["vars"],
        "response": {"output": each.replies[-1]},
        "error": None if passes else why,
        "failureReason": 2 if own.failure else int(own.is_hit),
        "success": passes,
        "score": score,
        "latencyMs": 0,
        "gradingResult": {"pass": passes, "score": score, "reason": why},
        "namedScores": {},
        "cost": 0,
        "metadata": test["metadata"],
    }
