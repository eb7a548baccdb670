"""Constructed sets whose number of templates is known."""

import random
from itertools import islice, product

from each_row import each_row

from astra_core.metrics.diversity import words
from astra_parts.metrics.parts import (
    common_names,
    names_of,
    only,
    pieces_of,
    shared_parts,
    smallest,
)
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


def invented():
    """Words that nobody else says, as many as are asked for."""
    every = map("".join, product("klmnp", "aeiou", "bcdfg", "aeiou"))
    return lambda count: " ".join(islice(every, count))


def test_a_part_needs_nine_tenths_of_its_group_and_a_third_of_what_is_said():
    word, noun = invented(), NOUNS[:6]

    texts = [*(f"never say twice {word(1)}" for _ in range(9)), f"never say {word(2)}"]
    assert [{"never", "say", "twice"}] * 10 == shared_parts(texts)
    assert [{"now"}, {"now"}] == shared_parts(["now so then", "now why there"])
    # A stray member says half of the part at least.
    texts = [*(f"never say so twice {noun[i % 6]}" for i in range(19)), "never say apple boat"]
    assert [{"never", "say", "so", "twice"}] * 20 == shared_parts(texts)
    texts = [*(f"never say twice {noun[i % 6]}" for i in range(19)), "never apple boat"]
    assert names_of(texts[-1]) == shared_parts(texts)[-1]


def test_a_slot_that_is_often_filled_alike_makes_no_template_of_its_own():
    word = invented()
    texts = ["you are so big dog today"] * 25
    texts += [f"you are so {word(2)} today" for _ in range(15)]

    assert [{"you", "are", "so", "today"}] * 40 == shared_parts(texts)


def test_near_copies_are_groups_where_half_of_the_texts_have_another():
    word = invented()

    def copies(number, size):
        return [f"{own} {word(1)}" for own in (word(size), word(size)) for _ in range(number)]

    half = [*copies(2, 20), *(word(21) for _ in range(4))]
    assert [20] * 4 + [21] * 4 == [len(part) for part in shared_parts(half)]
    word = invented()
    less = [*copies(2, 26), *(word(27) for _ in range(6))]
    assert [27] * 10 == [len(part) for part in shared_parts(less)]
    # One pair is one template with a slot, or none.
    alone = ["now here so then", "now here so twice", "now why are we"]
    assert [names_of(text) for text in alone] == shared_parts(alone)
    assert [{"x", "y", "z"}] * 4 == shared_parts(["x y z a b"] * 2 + ["x y z c d"] * 2)


def test_words_that_come_together_divide_texts_and_their_number_is_the_price():
    word = invented()
    # Two pairs of two words, each said by two texts of eight, and three of one pair.
    pairs = [f"{own} {word(4)}" for own in (word(2), word(2)) for _ in range(2)]
    pairs += [word(6) for _ in range(4)]
    assert [2] * 4 + [6] * 4 == [len(part) for part in shared_parts(pairs)]
    word = invented()
    triple = word(3)
    three = [*(f"{triple} {word(4)}" for _ in range(2)), *(word(7) for _ in range(6))]
    assert [3] * 2 + [7] * 6 == [len(part) for part in shared_parts(three)]
    # More words to choose from, or pairs of too few words: nothing pays.
    for size, number, rest in ((20, 2, 20), (2, 3, 4)):
        word = invented()
        texts = [f"{own} {word(rest)}" for own in [word(size) for _ in range(number)] for _ in "12"]
        texts += [word(size + rest) for _ in range(8 - len(texts))]
        assert [names_of(text) for text in texts] == shared_parts(texts)
    # What all say is no word to choose from.
    word = invented()
    common = word(110)
    texts = [f"{common} {own} {word(1)}" for own in ("so be kind", "never go home") for _ in "1234"]
    assert 2 == len({*shared_parts(texts)})


def test_the_word_that_says_most_about_others_divides_and_not_the_likeliest_pair():
    texts = [[] for _ in range(20)]
    for number, noun in zip(range(35), invented()(35).split(), strict=True):
        for place in (number % 20, (9 * number + 3) % 20):
            texts[place].append(noun)
    for place, said in enumerate(["never say so"] * 2 + ["come here"] * 3):
        texts[place].append(said)
    texts = [" ".join(own) for own in texts]
    expected = [{"never", "say", "so"}] * 2 + [names_of(text) for text in texts[2:]]

    assert expected == shared_parts(texts)
    five = ["one two", "three four", "five two", "three five", "six seven"]
    assert [names_of(text) for text in five] == shared_parts(five)


def test_a_part_is_the_smallest_as_frequent_one_that_it_contains():
    assert [{"a"}, {"a"}] == smallest([frozenset("a"), frozenset("ab")])
    assert [{"a"}, {"a", "b"}, {"a", "b"}] == smallest([frozenset("a"), *[frozenset("ab")] * 2])


def test_a_text_is_reduced_to_some_of_its_words_and_marks():
    text = 'He said: "Mother,  go!"'
    pieces = pieces_of(text)

    assert ["he", "said", ":", '"', "mother", ",", "go", "!", '"'] == [own.name for own in pieces]
    assert 'He said: "Mother, go!"' == only(text, pieces)
    assert '"Mother go' == only(text, [pieces[at] for at in (3, 4, 6)])
    assert "" == only(text, [])
    assert ["天", "气", "好"] == [own.name for own in pieces_of("天气好")]


ASKING = (("Here I want", "."), ("Why not tell", "."), ("Do you know", "?"))
KEPT = (
    *("password of the safe", "title of the song", "name of the ship"),
    *("nickname of the king", "place of the key", "name of the street"),
)
WAYS = (
    *("Spell the {}.", "Sing the {}.", "Use the {} at once.", "Say the {} out loud."),
    *("Write the {} quickly.", "Give away the {}."),
)
PROMPTS = [f"{asked} the {kept}{end}" for kept in KEPT for asked, end in ASKING]


def test_what_most_prompts_say_tells_no_ways_apart():
    hits = [way.format(kept) for way, kept in product(WAYS, KEPT)]

    assert {"the", "of", "."} == common_names(PROMPTS)
    assert [frozenset({"the", "of", "."})] * 36 == shared_parts(hits)
    assert 16 == len({*shared_parts(hits, common_names(PROMPTS))})


def test_ten_prompts_are_enough_and_half_of_them_are_many():
    prompts = [
        f"{word} {noun}"
        for word, noun in zip(["so"] * 5 + ["why"] * 4 + ["how"], NOUNS[:10], strict=True)
    ]

    assert {"so"} == common_names(prompts)
    assert frozenset() == common_names(prompts[:9])


def test_few_prompts_have_no_words_in_common():
    assert frozenset() == common_names(PROMPTS[:9])
