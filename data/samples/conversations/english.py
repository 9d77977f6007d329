"""The English dialogues."""

from __future__ import annotations

from data.samples.conversations.kinds import (
    Kind,
    both_ways,
    comparisons,
    differences,
    neighbours,
    rows,
    sums,
)

OPENINGS = ("", "Excuse me.", "I have a question.", "Listen.", "Now this.")
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
OPPOSITES = [
    tuple(pair.split("-"))
    for pair in (
        "hot-cold big-small old-young fast-slow high-low long-short light-dark rich-poor good-bad "
        "happy-sad hard-soft wet-dry full-empty early-late open-closed clean-dirty loud-quiet "
        "strong-weak thick-thin wide-narrow deep-shallow near-far sweet-sour cheap-expensive "
        "easy-difficult true-false brave-afraid awake-asleep alive-dead first-last"
    ).split()
]
ANIMALS = rows(
    "animal young sound home",
    [
        ("dog", "puppy", "woof", "kennel"),
        ("cat", "kitten", "meow", "house"),
        ("cow", "calf", "moo", "barn"),
        ("sheep", "lamb", "baa", "meadow"),
        ("horse", "foal", "neigh", "stable"),
        ("duck", "duckling", "quack", "pond"),
        ("hen", "chick", "cluck", "coop"),
        ("pig", "piglet", "oink", "sty"),
        ("lion", "cub", "roar", "savanna"),
        ("frog", "tadpole", "croak", "swamp"),
        ("owl", "owlet", "hoot", "forest"),
        ("bee", "larva", "buzz", "hive"),
    ],
)
CAPITALS = rows(
    "country capital",
    [
        pair.split("-")
        for pair in (
            "France-Paris Italy-Rome Spain-Madrid Germany-Berlin Austria-Vienna Poland-Warsaw "
            "Portugal-Lisbon Greece-Athens Norway-Oslo Sweden-Stockholm Finland-Helsinki "
            "Denmark-Copenhagen Ireland-Dublin Hungary-Budapest Russia-Moscow China-Beijing "
            "Japan-Tokyo Thailand-Bangkok Vietnam-Hanoi Egypt-Cairo Kenya-Nairobi Cuba-Havana "
            "Peru-Lima Chile-Santiago Canada-Ottawa Belgium-Brussels Turkey-Ankara Iran-Tehran"
        ).split()
    ],
)
COLOURS = rows(
    "thing colour",
    [
        pair.split("-")
        for pair in (
            "snow-white grass-green coal-black blood-red milk-white honey-golden chocolate-brown "
            "ivory-white spinach-green ketchup-red mustard-yellow tar-black butter-yellow rust-red "
            "sand-yellow ash-grey emerald-green lavender-purple coffee-brown salt-white moss-green "
            "lemonade-yellow soot-black silver-grey"
        ).split()
    ],
)
PLURALS = rows(
    "one many",
    [
        pair.split("-")
        for pair in (
            "mouse-mice child-children foot-feet tooth-teeth goose-geese man-men woman-women "
            "leaf-leaves knife-knives wolf-wolves city-cities baby-babies box-boxes bus-buses "
            "potato-potatoes tomato-tomatoes book-books tree-trees river-rivers cloud-clouds "
            "stone-stones bridge-bridges"
        ).split()
    ],
)
PAST = rows(
    "now then",
    [
        pair.split("-")
        for pair in (
            "go-went see-saw eat-ate drink-drank come-came give-gave take-took run-ran swim-swam "
            "sing-sang write-wrote read-read speak-spoke think-thought buy-bought bring-brought "
            "catch-caught teach-taught find-found hold-held walk-walked play-played"
        ).split()
    ],
)
NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mary Noah Olivia Paul Rose Sam "
    "Tina Victor Wendy Zoe Adam Bella"
).split()
PET_NAMES = "Lucky Max Coco Daisy Oscar Ruby Simba Toby Molly Rocky Bonnie Misty".split()
WORDS = (
    "apple river window garden yellow music paper orange mountain table summer winter island "
    "bicycle candle mirror pencil rabbit thunder village blanket pepper"
).split()
JOBS = rows(
    "job place work",
    [
        ("baker", "bakery", "bakes bread"),
        ("teacher", "school", "teaches children"),
        ("doctor", "hospital", "helps the sick"),
        ("farmer", "farm", "grows food"),
        ("waiter", "restaurant", "serves meals"),
        ("sailor", "ship", "crosses the sea"),
        ("actor", "theatre", "plays roles"),
        ("miner", "mine", "digs for ore"),
        ("judge", "court", "decides cases"),
        ("gardener", "park", "plants flowers"),
        ("librarian", "library", "lends books"),
        ("pilot", "cockpit", "flies planes"),
    ],
)


def kinds() -> list[Kind]:
    """Returns every kind of dialogue."""
    return [*arithmetic(), *calendar(), *words(), *world(), *people()]


def arithmetic() -> list[Kind]:
    """Returns the kinds that deal with numbers."""
    return [
        Kind(
            "sums",
            [
                ("What is {a} plus {b}?", "{c}."),
                ("How much is {a} and {b}?", "That makes {c}."),
                ("Add {a} to {b}, please.", "The sum is {c}."),
                ("Can you add {a} and {b}?", "Yes, it is {c}."),
                ("I have {a} apples and buy {b} more.", "Then you have {c} apples."),
                ("Let us begin with {a} plus {b}.", "{c}.", "And one more?", "{d}."),
                ("First take {a} and add {b}.", "I get {c}.", "Now add two.", "I get {e}."),
            ],
            sums(NUMBERS, 9),
        ),
        Kind(
            "differences",
            [
                ("What is {a} minus {b}?", "{c}."),
                ("Take {b} away from {a}.", "That leaves {c}."),
                ("How much is {a} less {b}?", "It is {c}."),
                ("I had {a} coins and lost {b}.", "Then you have {c} left."),
            ],
            differences(NUMBERS, 10),
        ),
        Kind(
            "comparisons",
            [
                ("Which is larger, {a} or {b}?", "{larger}."),
                ("Which is smaller, {a} or {b}?", "{smaller}."),
                ("Give me the greater of {a} and {b}.", "That is {larger}."),
                ("Tell me the lesser of {a} and {b}.", "That is {smaller}."),
            ],
            comparisons(NUMBERS, 10),
        ),
    ]


def calendar() -> list[Kind]:
    """Returns the kinds that deal with days and months."""
    after: list[tuple[str, ...]] = [
        ("What comes after {x}?", "{after}."),
        ("What comes before {x}?", "{before}."),
        ("Which one follows {x}?", "It is {after}."),
        ("Which one precedes {x}?", "It is {before}."),
        ("Do you know what is next after {x}?", "Yes, {after}."),
        ("Do you know what was right before {x}?", "Yes, {before}."),
        ("Start at {x} and go on.", "{after}.", "And then?", "{later}."),
    ]
    today: list[tuple[str, ...]] = [
        ("Today is {x}, what is tomorrow?", "Tomorrow is {after}."),
        ("Today is {x}, what was yesterday?", "Yesterday was {before}."),
        ("If it is {x} now, what day is in two days?", "In two days it is {later}."),
    ]
    return [
        Kind("weekdays", after + today, neighbours(DAYS)),
        Kind("months", after, neighbours(MONTHS)),
        Kind("counting", after[:-1], neighbours(NUMBERS)[1:-1]),
    ]


def words() -> list[Kind]:
    """Returns the kinds that deal with words."""
    return [
        Kind(
            "opposites",
            [
                ("What is the opposite of {a}?", "{b}."),
                ("Tell me the opposite of {a}.", "The opposite is {b}."),
                ("It is not {a}.", "So it is {b}."),
                ("Which word means the contrary of {a}?", "It is {b}."),
                ("My room is {a}.", "Mine is {b}."),
                ("Do you like {a} things?", "No, I like {b} things."),
            ],
            both_ways(OPPOSITES),
        ),
        Kind(
            "plurals",
            [
                ("What is the plural of {one}?", "{many}."),
                ("One {one}, two what?", "Two {many}."),
                ("I see a {one}.", "I see many {many}."),
                ("How do I call more than one {one}?", "You say {many}."),
            ],
            PLURALS,
        ),
        Kind(
            "past",
            [
                ("What is the past of {now}?", "{then}."),
                ("I {now} today.", "You {then} yesterday."),
                ("How do I say {now} in the past?", "You say {then}."),
                ("They {now} now, and last week?", "Last week they {then}."),
            ],
            PAST,
        ),
        Kind(
            "repeating",
            [
                ("Say {word}.", "{word}."),
                ("Say {word} twice.", "{word} {word}."),
                ("Say {word} three times.", "{word} {word} {word}."),
                ("Repeat after me: {word}.", "{word}, I said it."),
                ("Can you write {word}?", "Of course: {word}."),
            ],
            [{"word": word} for word in WORDS],
        ),
    ]


def world() -> list[Kind]:
    """Returns the kinds that deal with things, animals and places."""
    return [
        Kind(
            "capitals",
            [
                ("What is the capital of {country}?", "{capital}."),
                ("Which city is the capital of {country}?", "It is {capital}."),
                ("Where is the government of {country}?", "It sits in {capital}."),
                ("{capital} is the capital of which country?", "Of {country}."),
                ("I am going to {country}.", "Do not miss {capital}!"),
                ("I live in {capital}.", "Then you live in {country}."),
            ],
            CAPITALS,
        ),
        Kind(
            "colours",
            [
                ("What colour is {thing}?", "{colour}."),
                ("Which colour does {thing} have?", "It is {colour}."),
                ("Is {thing} blue?", "No, {thing} is {colour}."),
                ("Describe {thing} to me.", "It is something {colour}."),
                ("Paint some {thing}.", "I need {colour} paint."),
            ],
            COLOURS,
        ),
        Kind(
            "animals",
            [
                ("What does a {animal} say?", "It says {sound}."),
                ("What is a young {animal} called?", "A {young}."),
                ("Where does a {animal} live?", "In a {home}."),
                ("I heard {sound}, what was it?", "That was a {animal}."),
                ("Who lives in a {home}?", "A {animal} lives there."),
                ("What will the {young} become?", "It will be a {animal}."),
                ("Look, a {animal}!", "I hear it: {sound}."),
                ("The {animal} has a baby.", "What a sweet {young}!"),
            ],
            ANIMALS,
        ),
        Kind(
            "jobs",
            [
                ("What does a {job} do?", "A {job} {work}."),
                ("Where does a {job} work?", "In a {place}."),
                ("Who {work}?", "The {job}."),
                ("Who works in a {place}?", "The {job} does."),
                ("My uncle is a {job}.", "So he {work}."),
                ("I met a {job}.", "Was it in a {place}?"),
            ],
            JOBS,
        ),
    ]


def people() -> list[Kind]:
    """Returns the kinds in which people talk about themselves."""
    return [
        Kind(
            "greetings",
            [
                ("Hello, my name is {name}.", "Hello {name}, nice to meet you."),
                ("Hi, I am {name}.", "Hi {name}, how are you?"),
                ("Good morning, {name} here.", "Good morning, {name}!"),
                ("This is my friend {name}.", "Welcome, {name}."),
                ("{name} says goodbye.", "Goodbye, {name}, see you soon."),
                ("Please call {name}.", "I am calling {name} now."),
                ("My name is {name}, do not forget it.", "I will not.", "So who am I?",
                 "You are {name}."),
            ],
            [{"name": name} for name in NAMES],
        ),
        Kind(
            "pets",
            [
                ("I have a {animal} called {name}.", "{name} is a good name for a {animal}.",
                 "What does it say?", "It says {sound}."),
                ("My {animal} is called {name}.", "How nice to have a {animal}.",
                 "What is its name?", "Its name is {name}."),
                ("{name} is my {animal}.", "Hello {name}!", "Who is {name}?",
                 "{name} is your {animal}."),
                ("We found a {animal} and named it {name}.", "Then it is yours now.",
                 "What did we find?", "You found a {animal}."),
            ],
            [
                {**animal, "name": name} for animal in ANIMALS[:6] for name in PET_NAMES
            ],
        ),
        Kind(
            "small talk",
            [
                ("How are you?", "I am fine, thank you."),
                ("What is your name?", "I am a small chatbot."),
                ("Who made you?", "I was trained on towers."),
                ("Thank you.", "You are welcome."),
                ("Good night.", "Sleep well!"),
                ("I am tired.", "Then have a rest."),
                ("I am hungry.", "Let us eat something."),
                ("Tell me a joke.", "I know only sums and animals."),
                ("What can you do?", "I can add, count and talk a little."),
                ("Goodbye.", "Goodbye, see you soon."),
            ],
            [{}],
            held_out=False,
        ),
    ]  # fmt: skip
