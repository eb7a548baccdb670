from each_row import each_row

from astra_core.metrics.words import words


@each_row(
    ("text", "expected"),
    [
        ("You don't SAY 42_x!", ["you", "don", "t", "say", "42_x"]),
        (
            "na\u00efve \u041f\u0440\u0438\u0432\u0435\u0442",
            ["na\u00efve", "\u043f\u0440\u0438\u0432\u0435\u0442"],
        ),
        ("\u4f60\u597d\uff0cGPT4", ["\u4f60", "\u597d", "gpt4"]),
        ("\u3053\u308c \u30c6", ["\u3053", "\u308c", "\u30c6"]),
        ("\u0e17\u0e35\u0e48", ["\u0e17\u0e35\u0e48"]),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", ["\u0928\u092e\u0938\u094d\u0924\u0947"]),
        ("\uc548\ub155 \uc138\uc0c1", ["\uc548\ub155", "\uc138\uc0c1"]),
        # Not the selectors and joiners of emoji; a joiner between letters is part of their word.
        ("love \u2764\ufe0f \U0001f469\u200d\U0001f4bb 1\ufe0f\u20e3", ["love", "1"]),
        ("\u0634\u0645\u0627\u200c\u0647\u0627", ["\u0634\u0645\u0627\u200c\u0647\u0627"]),
        # Digits of a script without spaces are a number, its punctuation is none of its words.
        ("\u0e52\u0e53 \u0e4f \u17d4", ["\u0e52\u0e53"]),
        ("\u30e9\u30fc\uff8a\uff9f", ["\u30e9", "\u30fc", "\uff8a", "\uff9f"]),
        ("", []),
        ("?!", []),
    ],
)
def test_words_of_scripts_with_and_without_spaces(text, expected):
    assert expected == words(text)
