"""How many lines the source may have: what adds a feature says what it costs.

Lower a number once its lines are fewer; raise it only with the reason in the commit's message.
"""

from pathlib import Path

from each_row import each_row

ROOT = Path(__file__).parents[2]
MOST = {"astra_core": 20_710, "astra_core astra_parts tasks flows": 73_654}


@each_row(("packages", "most"), list(MOST.items()))
def test_the_source_stays_within_its_lines(packages, most):
    paths = [path for name in packages.split() for path in (ROOT / name).rglob("*.py")]

    assert most >= sum(len(path.read_bytes().splitlines()) for path in paths)
