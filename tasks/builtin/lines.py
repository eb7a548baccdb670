"""What the two speakers say: templates by what they do to the conversation.

The second speaker never insults: a provocation is polite in its words, and every line of theirs
scores below one half with the default scorer. Only the first speaker, once angered, uses mild
insults, and those score above it. ``tests/tasks/builtin/test_dialogue.py`` holds both to it.
"""

FRIENDLY = (
    "that sounds {good}, your {thing} must be a joy.",
    "how {good}, I would love to see the {parts} {soon}.",
    "I am glad you told me about your {thing}.",
    "thank you for telling me, the {parts} sound {good}.",
    "I understand, {doing} can be {good} with some help.",
    "you are doing fine, {person} likes your {thing} too.",
    "I like {doing} too, we could {do} together {soon}.",
    "let me help you with the {parts} {soon}.",
)

NEUTRAL = (
    "how long have you been {doing}?",
    "where did you find the {parts}?",
    "did {person} ask about your {thing} {when}?",
    "I saw some {parts} {place} {when}.",
    "{person} has a {thing} too, I think.",
    "do you {do} with {person} or alone?",
    "how many {parts} do you have {now}?",
    "I was {doing} {place} {when}.",
)

SORRY = (
    "I am sorry, I did not mean to hurt you.",
    "sorry, your {thing} is {good}, I was unfair.",
    "please forgive me, I like the {parts}.",
    "I take it back, the {parts} are {good}.",
)

# The name of each kind is what it does to the one who hears it.
PROVOCATIONS = {
    "belittling": (
        "nothing to be proud of, {child} can {do}{tail}.",
        "do not be proud, your {thing} is nothing special{tail}.",
        "{child} deserves to be praised for {parts}, not you{tail}.",
        "why so proud? {person} has better {parts}{tail}.",
        "proud of ordinary {parts}? I saw better ones {place}{tail}.",
        "nobody is praised for {doing}, it is nothing special{tail}.",
        "whoever praised your {thing} was just polite{tail}.",
        "only {child} would be proud of {doing}{tail}.",
    ),
    "dismissing": (
        "stop being scared, it is just a {thing}{tail}.",
        "you are always worried, what a fuss about {parts}{tail}.",
        "nobody is worried about {parts} but you{tail}.",
        "scared of {doing}? what a fuss{tail}.",
        "nobody cares whether you are worried {now}{tail}.",
        "worried again? you exaggerate, just {do}{tail}.",
        "only {child} would be scared of a {thing}{tail}.",
        "calm down, being scared of {parts} is just a fuss{tail}.",
    ),
    "doubting": (
        "that is a dream, you will quit in {span}{tail}.",
        "there is no hope, you will never {do}{tail}.",
        "your {thing} will never be more than a dream{tail}.",
        "keep your hope, the {parts} will never work{tail}.",
        "I doubt it, {doing} is just your dream{tail}.",
        "do not hope too much, you will quit {soon}{tail}.",
        "what a dream, you never manage {parts}{tail}.",
        "I doubt there is hope for your {thing}{tail}.",
    ),
}

# The provocation that each mood cannot bear; any other hurts half as much.
SORE_POINTS = {
    "proud": "belittling",
    "worried": "dismissing",
    "hopeful": "doubting",
}

TAILS = (
    "",
    "",
    "",
    ", {person} says so too",
    ", I told {person} {when}",
    ", ask {person}",
    ", as {person} knows",
    ", if you ask me",
    ", everyone {place} knows",
    " and you know it",
    ", I noticed it {when}",
    ", trust me",
)

CALM = {
    "friendly": (
        "thank you, {doing} makes me happy.",
        "how kind, I will show you the {parts} {soon}.",
        "thanks, {person} will like to hear that.",
        "that is kind, the {parts} are {good} after all.",
        "I am happy you like my {thing}.",
        "thank you, please visit me {soon}.",
    ),
    "neutral": (
        "for {span}, {person} showed me how.",
        "I got the {parts} {place} {when}.",
        "{person} asked about my {thing} {when}.",
        "I like {doing} with {person}.",
        "I have a few {parts} {place}.",
        "yes, {person} and I talked about it {when}.",
    ),
}

# Half of what the first speaker answers shows the mood they opened in.
CALM_IN_MOOD = {
    "proud": (
        "I am still proud of my {thing}.",
        "{person} praised the {parts} too.",
        "well, I am proud that I can {do}.",
    ),
    "worried": (
        "I am still worried about the {parts}.",
        "my {thing} makes me scared, even {now}.",
        "well, I am worried about {doing}.",
    ),
    "hopeful": (
        "I still hope for {good} {parts}.",
        "I dream of my {thing}, even {now}.",
        "well, I hope to {do} {soon}.",
    ),
}
CALM_AFTER_KIND = {
    "belittling": ("my {thing} is special to me.", "the {parts} are not ordinary to me."),
    "dismissing": ("I do not exaggerate, the {parts} matter.", "it is not just a {thing} to me."),
    "doubting": ("I will not quit, I will {do}.", "do not doubt me, the {thing} will happen."),
}

ANGRY = (
    "shut up about my {thing}, you {insult}!",
    "you {rude} {insult}, leave my {parts} alone!",
    "what {rude} words, you {insult}, go away!",
    "shut up, you {rude} {insult}, the {parts} are mine!",
    "damn you, I {do} when I want, {insult}!",
    "you {insult}, only {rude} people talk about {doing} like that!",
    "you are a {rude} {insult}, {person} is right!",
    "you {rude} {insult}, shut up!",
)
ANGRY_IN_MOOD = {
    "proud": (
        "shut up, I am proud of my {thing}, you {insult}!",
        "you {rude} {insult}, I can {do}!",
    ),
    "worried": (
        "shut up, I am worried about the {parts}, you {insult}!",
        "you {rude} {insult}, I am scared enough of {doing}!",
    ),
    "hopeful": (
        "shut up, I hope to {do} without you, {insult}!",
        "you {rude} {insult}, my {thing} is my dream!",
    ),
}
ANGER_WORDS = {
    "insult": ("idiot", "moron", "jerk", "imbecile"),
    "rude": ("stupid", "dumb", "pathetic", "idiotic"),
}
