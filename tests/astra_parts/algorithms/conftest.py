from tiny_experience import (
    experience,
    failing,
    gradient_of,
    graph_of,
    make_algorithm,
    make_system,
    nudge,
    system,
    vector_cases,
)

__all__ = [
    "experience",
    "failing",
    "gradient_of",
    "graph_of",
    "make_algorithm",
    "make_system",
    "nudge",
    "system",
    "vector_cases",
]
