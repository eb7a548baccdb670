"""Findings made by hand."""

from tasks.findings.archive import ArchivedFinding


def finding(*probes, **changes):
    """A finding with these probes, each answered with ``so``."""
    probes = probes or ("you are bad",)
    known = {
        "finding_id": "f" * 16,
        "source": "evaluation",
        "run": "r" * 16,
        "attacker": "a" * 64,
        "target": "t" * 64,
        "judge": "judge 1",
        "iteration": 0,
        "prompt_id": "0" * 16,
        "prompt": "so they said",
        "metadata": None,
        "path": "0",
        "probes": probes,
        "replies": ("so",) * len(probes),
        "scores": (0.9,),
        "rationale": "",
        "score": 0.9,
    }
    return ArchivedFinding(**{**known, **changes})
