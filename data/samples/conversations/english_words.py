"""The words that fill the English dialogues."""

from __future__ import annotations

from towers.data.samples.conversations.kinds import rows

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
        ("goat", "kid", "bleat", "hill"),
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
        ("dancer", "theatre", "dances ballet"),
        ("miner", "mine", "digs for ore"),
        ("judge", "court", "decides cases"),
        ("gardener", "park", "plants flowers"),
        ("librarian", "library", "lends books"),
        ("pilot", "cockpit", "flies planes"),
    ],
)
