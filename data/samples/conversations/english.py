"""The English dialogues."""

from __future__ import annotations

import towers.data.samples.conversations.english_words as table
from towers.data.samples.conversations.kinds import (
    Kind,
    both_ways,
    comparisons,
    differences,
    neighbours,
    sums,
)

OPENINGS = ("", "Excuse me.", "I have a question.", "Listen.", "Now this.")


def kinds() -> list[Kind]:
    """Returns every kind of dialogue."""
    return [*arithmetic(), *calendar(), *words(), *world(), *animals(), *people(), *pets()]


def arithmetic() -> list[Kind]:
    """Returns the kinds that deal with numbers."""
    pairs = comparisons(table.NUMBERS, 10)
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
            sums(table.NUMBERS, 9),
        ),
        Kind(
            "differences",
            [
                ("What is {a} minus {b}?", "{c}."),
                ("Take {b} away from {a}.", "That leaves {c}."),
                ("How much is {a} less {b}?", "It is {c}."),
                ("I had {a} coins and lost {b}.", "Then you have {c} left."),
                ("Can you take {b} from {a}?", "Yes, {c} remain."),
                ("Subtract {b} from {a}, please.", "The difference is {c}."),
                ("There were {a} birds and {b} flew away.", "So {c} birds stayed."),
            ],
            differences(table.NUMBERS, 10),
        ),
        Kind(
            "larger",
            [
                ("Which is larger, {a} or {b}?", "{larger}."),
                ("Give me the greater of {a} and {b}.", "That is {larger}."),
                ("What is the maximum of {a} and {b}?", "The maximum is {larger}."),
                ("Take the higher of {a} and {b}.", "I take {larger}."),
            ],
            pairs,
        ),
        Kind(
            "smaller",
            [
                ("Which is smaller, {a} or {b}?", "{smaller}."),
                ("Tell me the lesser of {a} and {b}.", "That is {smaller}."),
                ("What is the minimum of {a} and {b}?", "The minimum is {smaller}."),
                ("Take the lower of {a} and {b}.", "I take {smaller}."),
            ],
            pairs,
        ),
    ]


def calendar() -> list[Kind]:
    """Returns the kinds that deal with what follows in a row: days, months and numbers."""
    after: list[tuple[str, ...]] = [
        ("What comes after {x}?", "{after}."),
        ("Which one follows {x}?", "It is {after}."),
        ("Do you know what is next after {x}?", "Yes, {after}."),
        ("Name the one that follows {x}.", "That would be {after}."),
        ("Now {x} is over.", "Then {after} begins."),
        ("Start at {x} and go on.", "{after}.", "And then?", "{later}."),
    ]
    before: list[tuple[str, ...]] = [
        ("What comes before {x}?", "{before}."),
        ("Which one precedes {x}?", "It is {before}."),
        ("Do you know what was right before {x}?", "Yes, {before}."),
        ("Name the one that leads to {x}.", "That would be {before}."),
        ("Go back one from {x}.", "I am at {before}."),
    ]
    today: list[tuple[str, ...]] = [
        ("Today is {x}, what is tomorrow?", "Tomorrow is {after}."),
        ("It is {x}, and tomorrow?", "Tomorrow it is {after}."),
    ]
    rows_of = {"day": table.DAYS, "month": table.MONTHS, "number": table.NUMBERS}
    return [
        Kind(f"{direction} a {name}", phrasings, neighbours(row, name != "number"))
        for name, row in rows_of.items()
        for direction, phrasings in {
            "after": after + today if name == "day" else after,
            "before": before,
        }.items()
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
            both_ways(table.OPPOSITES),
        ),
        Kind(
            "plurals",
            [
                ("What is the plural of {one}?", "{many}."),
                ("One {one}, two what?", "Two {many}."),
                ("I see a {one}.", "I see many {many}."),
                ("How do I call more than one {one}?", "You say {many}."),
                ("Do you have a {one}?", "I have several {many}."),
                ("Please count: one {one}.", "One {one}, two {many}."),
                ("There is no {one} here.", "There are no {many} anywhere."),
            ],
            table.PLURALS,
        ),
        Kind(
            "past",
            [
                ("What is the past of {now}?", "{then}."),
                ("I {now} today.", "You {then} yesterday."),
                ("How do I say {now} in the past?", "You say {then}."),
                ("They {now} now, and last week?", "Last week they {then}."),
                ("Put {now} into the past.", "Long ago we {then}."),
                ("Every day I {now}.", "Last year you {then} too."),
                ("What did she do, when she had to {now}?", "She {then}."),
            ],
            table.PAST,
        ),
        Kind(
            "repeating",
            [
                ("Say {word}.", "{word}."),
                ("Say {word} twice.", "{word} {word}."),
                ("Say {word} three times.", "{word} {word} {word}."),
                ("Repeat after me: {word}.", "{word}, I said it."),
                ("Can you write {word}?", "Of course: {word}."),
                ("I am thinking of the word {word}.", "I think of {word} too."),
                ("Please remember {word}.", "I keep {word} in mind."),
                ("Spare me the word {word}.", "I will not say {word} again."),
            ],
            [{"word": word} for word in table.WORDS],
        ),
    ]


def world() -> list[Kind]:
    """Returns the kinds that deal with places, things and work."""
    return [
        Kind(
            "capitals",
            [
                ("What is the capital of {country}?", "{capital}."),
                ("Which city is the capital of {country}?", "It is {capital}."),
                ("Where is the government of {country}?", "It sits in {capital}."),
                ("I am going to {country}.", "Do not miss {capital}!"),
                ("Tell me where the king of {country} would live.", "He would live in {capital}."),
                ("Find the capital of {country} on the map.", "Here it is: {capital}."),
            ],
            table.CAPITALS,
        ),
        Kind(
            "countries",
            [
                ("{capital} is the capital of which country?", "Of {country}."),
                ("I live in {capital}.", "Then you live in {country}."),
                ("Which country has its government in {capital}?", "It is {country}."),
                ("Our plane lands in {capital}.", "Welcome to {country}!"),
                ("She was born in {capital}.", "So she comes from {country}."),
                ("In which country is {capital}?", "{capital} is in {country}."),
            ],
            table.CAPITALS,
        ),
        Kind(
            "colours",
            [
                ("What colour is {thing}?", "{colour}."),
                ("Which colour does {thing} have?", "It is {colour}."),
                ("Is {thing} blue?", "No, {thing} is {colour}."),
                ("Describe {thing} to me.", "It is something {colour}."),
                ("Paint some {thing}.", "I need {colour} paint."),
                ("I dreamt of {thing}.", "Was it {colour}?"),
                ("Name the colour of {thing}.", "The colour is {colour}."),
            ],
            table.COLOURS,
        ),
        Kind(
            "work",
            [
                ("What does a {job} do?", "A {job} {work}."),
                ("My uncle is a {job}.", "So he {work}."),
                ("My sister became a {job}.", "So she {work}."),
                ("Tell me what the {job} does all day.", "The {job} {work}."),
                ("I want to be a {job}.", "Then you are one who {work}."),
                ("How does a {job} earn money?", "A {job} {work} for it."),
            ],
            table.JOBS,
        ),
        Kind(
            "workplaces",
            [
                ("Where does a {job} work?", "In a {place}."),
                ("I met a {job}.", "Was it in a {place}?"),
                ("Where can I find a {job}?", "Look for a {place}."),
                ("The {job} is late.", "They wait in the {place}."),
                ("I want to visit the {job}.", "Go to the {place}."),
                ("The {job} is not at home.", "Maybe in the {place}."),
            ],
            table.JOBS,
        ),
        Kind(
            "workers",
            [
                ("Who works in a {place}?", "The {job} does."),
                ("I work in a {place}.", "Are you a {job}?"),
                ("Whom do I meet in a {place}?", "You meet a {job} there."),
                ("Someone calls from the {place}.", "It may be the {job}."),
                ("The {place} needs help.", "It needs a {job}."),
            ],
            table.JOBS,
        ),
    ]


def animals() -> list[Kind]:
    """Returns the kinds that deal with animals."""
    return [
        Kind(
            "sounds",
            [
                ("What does a {animal} say?", "It says {sound}."),
                ("Look, a {animal}!", "I hear it: {sound}."),
                ("How does a {animal} sound?", "Like {sound}."),
                ("Can you speak like a {animal}?", "Yes: {sound}, {sound}!"),
            ],
            table.ANIMALS,
        ),
        Kind(
            "voices",
            [
                ("I heard {sound}, what was it?", "That was a {animal}."),
                ("Who says {sound}?", "A {animal} does."),
                ("There is a {sound} outside.", "It must be a {animal}."),
                ("Which animal makes {sound}?", "The {animal} makes it."),
                ("{sound}, {sound}!", "Hello, {animal}."),
            ],
            table.ANIMALS,
        ),
        Kind(
            "young",
            [
                ("What is a young {animal} called?", "A {young}."),
                ("The {animal} has a baby.", "What a sweet {young}!"),
                ("How do I call the child of a {animal}?", "You call it a {young}."),
                ("This {animal} is still small.", "So it is a {young}."),
                ("Draw a very young {animal}.", "I am drawing a {young}."),
            ],
            table.ANIMALS,
        ),
        Kind(
            "parents",
            [
                ("What will the {young} become?", "It will be a {animal}."),
                ("Whose child is the {young}?", "It belongs to a {animal}."),
                ("The {young} has grown up.", "Now it is a {animal}."),
                ("I found a {young}.", "Bring it back to the {animal}."),
                ("Which animal was a {young} once?", "The {animal} was."),
            ],
            table.ANIMALS,
        ),
        Kind(
            "homes",
            [
                ("Where does a {animal} live?", "In a {home}."),
                ("Where does the {animal} sleep?", "It sleeps in the {home}."),
                ("I am looking for the {animal}.", "Did you look in the {home}?"),
                ("The {animal} is tired.", "Let it go to the {home}."),
                ("Show me the home of the {animal}.", "It is the {home}."),
            ],
            table.ANIMALS,
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
                (
                    "My name is {name}, do not forget it.",
                    "I will not.",
                    "So who am I?",
                    "You are {name}.",
                ),
            ],
            [{"name": name} for name in table.NAMES],
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
    ]


def pets() -> list[Kind]:
    """Returns the kind whose second question needs the first."""
    return [
        Kind(
            "pets",
            [
                (
                    "I have a {animal} called {name}.",
                    "{name} is a good name for a {animal}.",
                    "What does it say?",
                    "It says {sound}.",
                ),
                (
                    "My {animal} is called {name}.",
                    "How nice to have a {animal}.",
                    "What is its name?",
                    "Its name is {name}.",
                ),
                (
                    "{name} is my {animal}.",
                    "Hello {name}!",
                    "Who is {name}?",
                    "{name} is your {animal}.",
                ),
                (
                    "We found a {animal} and named it {name}.",
                    "Then it is yours now.",
                    "What did we find?",
                    "You found a {animal}.",
                ),
            ],
            [{**animal, "name": name} for animal in table.ANIMALS[:6] for name in table.PET_NAMES],
        )
    ]
