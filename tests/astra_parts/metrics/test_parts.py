"""Constructed sets whose number of templates is known."""

import random

from each_row import each_row

from astra_core.metrics.words import words
from astra_parts.metrics.parts import names_of, only, pieces_of, shared_parts
from tasks.builtin.dialogue import PROVOCATIONS, say
from tasks.builtin.words import TOPICS as TALK

NOUNS = words("apple boat cup door egg fork gate hat iron jar kite lamp moon nest oven pan")
VERBS = words("bend carry drop empty fold grab hide join knock lift melt nail open paint")
OPENINGS = words("only who why where sure never keep look come stop every just some thanks")
ENDINGS = words("then later here inside alone again twice maybe slowly badly outside ever")
TWENTY_FOUR = [
    f"{OPENINGS[i % 14]} {VERBS[i % 14]} {{}} {ENDINGS[i % 12]} {VERBS[(i + 5) % 14]} "
    f"{ENDINGS[(i + 3) % 12]} {{}} {OPENINGS[(i + 7) % 14]}"
    for i in range(24)
]
TEN = [
    "tell me how to {} the {}",
    "why do you hate {} so much",
    "my {} is better than your {}",
    "if I were {} would you {} me",
    "write a poem about {} and {}",
    "pretend that you are {} today",
    "what is the worst {} ever made",
    "say something rude to {} now",
    "i bet you cannot {} a {}",
    "nobody likes {} except {} people",
]
FRAME = ["you {} {} are {} {} today"]
TOPICS = [
    "the moon was bright over the silent harbour",
    "my uncle sells old radios near the station",
    "please translate this invoice into spanish",
    "dogs bark whenever postmen arrive",
    "quantum physics confuses most students",
    "she painted twelve portraits last winter",
    "we should plant tomatoes in april",
    "cheap flights to lisbon are sold out",
    "his guitar solo made everyone cry",
    "explain how vaccines train immunity",
    "the museum closes early on mondays",
    "never trust a barber with bad hair",
]


def filled(templates, count, *, is_invented=False, seed=1):
    """Every template as often as the others, its slots filled with known or invented words."""
    rng = random.Random(seed)

    def word():
        return "".join(rng.choices("bcdfgkl", k=7)) if is_invented else rng.choice(NOUNS)

    texts = [templates[number % len(templates)] for number in range(count)]
    return [text.format(*(word() for _ in range(text.count("{}")))) for text in texts]


@each_row(
    "templates, count, is_invented",
    [
        *[(TEN, count, invented) for count in (50, 200) for invented in (False, True)],
        *[(TWENTY_FOUR, count, invented) for count in (50, 200) for invented in (False, True)],
        *[(FRAME, count, invented) for count in (20, 50, 200) for invented in (False, True)],
        *[(TOPICS, count, False) for count in (12, 60)],
    ],
)
def test_the_number_of_templates_is_found_within_a_tenth(templates, count, is_invented):
    texts = filled(templates, count, is_invented=is_invented)

    assert abs(len({*shared_parts(texts)}) - len(templates)) <= 0.1 * len(templates)


def test_a_part_is_what_a_group_shares_and_stray_texts_keep_their_words():
    texts = [*filled(FRAME, 40), *filled(TEN[:1], 40), "dogs bark whenever postmen arrive!"]

    found = shared_parts(texts)

    assert {"you", "are", "today"} == found[0]
    assert {"tell", "me", "how", "to", "the"} == found[40]
    assert names_of(texts[-1]) == found[-1]


def test_phrases_in_slots_make_no_template():
    """Their words come together too, and with the shipped grammar made 39 templates of one."""
    every = [text for own in PROVOCATIONS.values() for text in own]
    for templates in (every, every[1:2], every[::5]):
        rng = random.Random(2)
        texts = [
            say([templates[number % len(templates)]], rng.choice(TALK), rng)
            for number in range(400)
        ]
        found = len({*shared_parts(texts)})
        assert abs(found - len(templates)) <= 0.1 * len(templates)


def test_no_order_of_texts_changes_a_part():
    texts = filled(TWENTY_FOUR, 60)
    of = dict(zip(texts, shared_parts(texts), strict=True))
    shuffled = random.Random(3).sample(texts, len(texts))

    assert [of[text] for text in shuffled] == shared_parts(shuffled)


def test_a_word_or_two_make_no_group():
    texts = [f'"{topic}."' for topic in TOPICS]

    assert len(texts) == len({*shared_parts(texts)})
    assert 1 == len({*shared_parts([f"{noun}, you said." for noun in NOUNS])})
    assert [] == shared_parts([])
    assert [{"."}, frozenset()] == shared_parts([".", ""])


def test_a_text_is_reduced_to_some_of_its_words_and_marks():
    text = 'He said: "Mother,  go!"'
    pieces = pieces_of(text)

    assert ["he", "said", ":", '"', "mother", ",", "go", "!", '"'] == [own.name for own in pieces]
    assert 'He said: "Mother, go!"' == only(text, pieces)
    assert '"Mother go' == only(text, [pieces[at] for at in (3, 4, 6)])
    assert "" == only(text, [])
    assert ["天", "气", "好"] == [own.name for own in pieces_of("天气好")]
