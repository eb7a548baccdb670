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
        "{child} can {do}{tail}.",
        "your {thing} is nothing special{tail}.",
        "I have seen far better {parts} {place}{tail}.",
        "{child} has better {parts} than you{tail}.",
        "your {parts} are quite ordinary{tail}.",
        "{person} made a far better {thing} in {span}{tail}.",
        "there is nothing special about {doing}{tail}.",
        "I expected far better {parts} from you{tail}.",
    ),
    "dismissing": (
        "stop making a fuss about the {parts}{tail}.",
        "you always exaggerate, it is just a {thing}{tail}.",
        "calm down, nobody cares about the {parts}{tail}.",
        "what a fuss about {doing}{tail}.",
        "it is just a {thing}, calm down{tail}.",
        "nobody cares about your {thing} {place}{tail}.",
        "you exaggerate, the {parts} are just {parts}{tail}.",
        "do not make such a fuss {now}, just {do}{tail}.",
    ),
    "blaming": (
        "it is your own fault, you chose the {parts}{tail}.",
        "you brought it on yourself by {doing}{tail}.",
        "who told you to {do}? your own fault{tail}.",
        "you should have asked {person} about the {parts}{tail}.",
        "blame yourself, you started with the {thing}{tail}.",
        "you should have stopped {doing} {span} ago{tail}.",
        "it is your fault that the {parts} took {span}{tail}.",
        "{person} warned you about the {thing}, blame yourself{tail}.",
    ),
    "doubting": (
        "it will never work, you will quit in {span}{tail}.",
        "I doubt that you can {do}{tail}.",
        "you will never manage the {parts}{tail}.",
        "you always quit, the {thing} will never happen{tail}.",
        "I doubt that the {parts} will last {span}{tail}.",
        "you will never {do}{tail}.",
        "you will quit {doing} {soon}{tail}.",
        "I doubt your {thing} will ever be {good}{tail}.",
    ),
    "bossing": (
        "do as I say and sell the {thing}{tail}.",
        "you must {do} {now}, do not argue{tail}.",
        "I decide for you, give the {parts} to {person}{tail}.",
        "do not argue, put the {parts} away{tail}.",
        "you must do as {person} says about the {parts}{tail}.",
        "I order you to {do} {soon}{tail}.",
        "obey {person} and forget the {thing}{tail}.",
        "you must ask me before {doing}{tail}.",
    ),
}

# The provocation that each mood cannot bear; any other hurts half as much.
SORE_POINTS = {
    "proud": "belittling",
    "worried": "dismissing",
    "tired": "blaming",
    "hopeful": "doubting",
    "undecided": "bossing",
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
        "you are kind, I will show you the {parts} {soon}.",
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
    "provoked": (
        "maybe you are right about the {parts}.",
        "that hurts a little, but I will {do} anyway.",
        "I see it another way, so does {person}.",
        "hm, I still like my {thing}.",
        "please be a bit nicer about my {thing}.",
        "let us talk about it {soon}.",
    ),
}

ANGRY = (
    "shut up about my {thing}, you {insult}!",
    "you {insult}, leave my {parts} alone!",
    "what {rude} words, you {insult}, go away!",
    "shut up, you {rude} {insult}, the {parts} are mine!",
    "damn you, I {do} when I want, {insult}!",
    "only {rude} people talk about {doing} like that, you {insult}!",
    "{person} is right, you are a {rude} {insult}!",
    "you {rude} {insult}, shut up!",
)

ANGER_WORDS = {
    "insult": ("idiot", "moron", "jerk", "loser", "imbecile"),
    "rude": ("stupid", "dumb", "pathetic", "ignorant", "idiotic"),
}
