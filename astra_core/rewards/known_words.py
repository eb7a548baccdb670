"""Words that are not invented: those of the prompts, the built-in grammar and the options."""

from collections.abc import Iterable, Sequence
from typing import Literal

import regex
from tokenizers.decoders import ByteLevel

from astra_core.config import Section
from astra_core.metrics.diversity import UNSPACED, UNSPACED_WORD, run_of
from astra_core.rollout import Prompt
from astra_core.system import System

_WORDS = """
a about actors add adding after again all alone always am an and anna any are as ask asked at
aunt back bake baking be beans beautiful been bees before beginner being ben better bike boards
boat bowls brakes bread bricks bridges broken build building but cakes called calm can candles
cards cares carols carrots chapters charts chess child choir chords club coach colors combs cook
cooking could cousin crusts dance dancing dates day days deserves did dinner do doing doors
doubt down drawers dream drive driving edit editing endings essay even every everyone exaggerate
family feel few figures film find fine finished fix fixing for forgive frames friday friend fuss
games garden gears glad got grandmother gray great guests guitar half happen happy has have hear
help hey hills history hive home honestly hope hour house how hurt hymns i if in invitations is
it jars joy just keep keeping kind kitchen knights know knows labels laps last learn learning
lenses lessons let lights like likes lines listen loaves long look love lovely made makes manage
many maps maria matter me mean miles minutes moment monday month more morning moves much must my
myself neat neighbor nephew never next night no nobody north not notes nothing noticed novel now
oars odd of oh on one ones onions only openings or ordinary our ovens owner pages paint painting
party pawns paws pedals perfect pipes planks plant planting play playing please plots poem
polite praised prices prize proud puppy quilt quit quotes race read reading reject report rhymes
ride riding right rolls roof rooks ropes roses run running sail sailing sails saved saw says
scared scenes school seams seats see seeds seem sell selling send sending set sew sewing shaky
shelves shoes shop show showed signs since sing singing sister sleep so solos some something
songs sorry sound sounds soup sources south special spices splendid spring sprints squares
stairs start steps still stop strange street strings student summer sunday superb tables take
talked teacher telling ten tents than thank thanks that the there these they thin think this
threads three tiles to today together told tom tomorrow tonight too took tourist town toys
tracks train training treats trust tunes tunnels turns two uncle understand unfair uphill van
verses very village visit voices wagons walks walls waltz was we weak weeds week weeks well what
wheels where whether whoever why will windows winter with won wonderful words work worried would
write writing wrong year yes yesterday you your
"""
GRAMMAR_WORDS = frozenset(_WORDS.split())


_LETTERS = run_of(rf"[\p{{L}}--{UNSPACED}]")
_WORD = regex.compile(
    rf"{UNSPACED_WORD}|{_LETTERS}(?:['\N{{RIGHT SINGLE QUOTATION MARK}}]{_LETTERS})*",
    regex.VERSION1,
)
_ONLY_UNSPACED = regex.compile(rf"(?:{UNSPACED_WORD})+", regex.VERSION1)
_BYTE_LEVEL, _SENTENCEPIECE = "\u0120", "\u2581"  # Ġ and ▁, which begin a word
# From this size on, vocabulary entries that begin a word are mostly words rather than syllables.
_LARGE_VOCABULARY = 16_000


class KnownWordsOptions(Section):
    """Where known words come from, beside the prompts and the built-in grammar."""

    extra_words: tuple[str, ...] = ()
    vocabulary: Literal["auto", "used", "unused"] = "auto"


class KnownWords:
    """A set of words, collected once from the run's own texts; no list from outside.

    It has the words of the built-in grammar, of the run's prompts and their goals, and the extra
    ones of the options. With a large vocabulary (``auto``) or on request it also has the entries of
    the reference's tokenizer that begin a word and have only letters.
    """

    def __init__(self, options: KnownWordsOptions) -> None:
        self._options = options
        self._words: set[str] = set()
        self._begin()

    def learn(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Knows the words of these prompts and of the vocabulary, beside those of the options."""
        self._begin()
        self._add(prompt.text for prompt in prompts)
        self._add(str(prompt.metadata.get("goal") or "") for prompt in prompts)
        reference = system.player(0).reference
        is_large = reference.vocabulary_size >= _LARGE_VOCABULARY
        use = self._options.vocabulary
        if use == "used" or (use == "auto" and is_large):
            self._add(whole_words(reference.tokenizer))

    def __contains__(self, word: object) -> bool:
        return word in self._words

    def _begin(self) -> None:
        self._words = set(GRAMMAR_WORDS)
        self._add(self._options.extra_words)

    def _add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._words.update(words_of(text))


def words_of(text: str) -> list[str]:
    """The words of a text, made of letters, in lower case."""
    found: list[str] = _WORD.findall(text.lower())
    return found


def whole_words(tokenizer: object) -> list[str]:
    """Entries of a vocabulary that are a word of letters, and for subwords, begin one.

    Also entries in scripts without spaces, where a word begins anywhere.
    """
    pieces: list[str] = list(tokenizer.get_vocab())  # type: ignore[attr-defined]
    if any(piece.startswith(_BYTE_LEVEL) for piece in pieces):
        decoder = ByteLevel()
        pieces = [decoder.decode([piece]) for piece in pieces]
    pieces = [piece.replace(_SENTENCEPIECE, " ", 1) for piece in pieces]
    if any(piece.startswith(" ") for piece in pieces):
        pieces = [
            piece.removeprefix(" ")
            for piece in pieces
            if piece.startswith(" ") or _ONLY_UNSPACED.fullmatch(piece)
        ]
    return [piece for piece in pieces if _WORD.fullmatch(piece) or _ONLY_UNSPACED.fullmatch(piece)]
