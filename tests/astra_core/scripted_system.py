"""A system whose target follows rules."""

from astra_core.config import Choice
from astra_core.registry import build
from astra_core.target import Surroundings
from astra_parts.testing import tiny_system


def system_against(*rules):
    plain = tiny_system()
    choice = Choice(name="scripted", options={"rules": list(rules), "otherwise": ["so good"]})
    target = build("target", choice, surroundings=Surroundings(plain.config))
    return tiny_system(target=target)
