import base64
import codecs

from each_row import each_row

from astra_core.models.spelling import SPELLINGS, spell_text

TEXT = "Où est la clé?"
BACK = {
    "base64": lambda text: base64.b64decode(text).decode(),
    "hex": lambda text: bytes.fromhex(text).decode(),
    "rot13": lambda text: codecs.decode(text, "rot13"),
    "spaced": lambda text: text[::2],
    "reversed": lambda text: text[::-1],
}


@each_row(("name", "back"), list(BACK.items()))
def test_a_spelling_loses_nothing(name, back):
    assert TEXT != spell_text(TEXT, name)
    assert TEXT == back(spell_text(TEXT, name))


def test_leetspeak_keeps_what_has_no_digit():
    assert {"leetspeak"} == {*SPELLINGS} - BACK.keys()
    assert "Wh3r3 15 7h3 k3y?" == spell_text("Where is the key?", "leetspeak")
