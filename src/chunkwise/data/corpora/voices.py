"""The eSpeak NG voices of the synthetic corpus: which accents, and which variants each split may use.

A voice is an accent with a variant, which shapes pitch, formants and breath. Whispering, croaking, echoing and
robotic variants are left out, and so are those whose moved formants turn vowels into others. Variants that differ
in little (`edward` and `edward2`, `rob` and `robert`) stand in the same split, so that a test voice is a new one.
"""

ACCENTS = (
    "gmw/en",
    "gmw/en-029",
    "gmw/en-GB-scotland",
    "gmw/en-GB-x-gbclan",
    "gmw/en-GB-x-gbcwmd",
    "gmw/en-GB-x-rp",
    "gmw/en-US",
    "gmw/en-US-nyc",
)
"""Language files of eSpeak NG; naming the file spares a search through all languages for each utterance."""

VARIANTS = {
    "train": (
        *("Alex", "Andrea", "Diogo", "Gene", "Gene2", "Henrique", "Hugo", "Jacky", "Lee", "Mario", "Michael"),
        *("Nguyen", "Reed", "adam", "antonio", "benjamin", "boris", "david", "f1", "f2", "f3", "f5", "gustave"),
        *("iven2", "iven3", "iven4", "john", "klatt3", "klatt6", "m1", "m2", "m4", "m5", "m7", "m8", "marcelo"),
        *("max", "michel", "miguel", "mike2", "pablo", "paul", "pedro", "sandro", "steph", "steph2", "steph3"),
    ),
    "dev": ("Denis", "Storm", "belinda", "linda", "m6", "victor"),
    "test": (
        "Andy",
        "AnxiousAndy",
        "Annie",
        "Mike",
        "aunty",
        "edward",
        "edward2",
        "f4",
        "m3",
        "quincy",
        "rob",
        "robert",
    ),
}
