"""The one normaliser of transcripts: references and hypotheses both pass through it."""

import unicodedata

APOSTROPHES = dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\u0060\u00b4"), "'")
"""Typographic forms of the apostrophe, which is part of a word."""

INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"))
"""Zero-width characters and the soft hyphen: they leave no space."""


def normalise(text: str) -> str:
    r"""The text as words in lower case, one space apart.

    Zero-width characters go; compatibility forms become plain (NFKC: full-width digits, ligatures, `½` as `1⁄2`);
    apostrophes become `'`; letters become lower case; any run of white space becomes one space. Punctuation stays:
    whether transcripts have it is the corpus' business. Normalising twice changes nothing more.

    >>> normalise(" Don\u2019t\t STOP\u00a0now\u200b ")
    "don't stop now"
    """
    text = _plain(_plain(text).lower())  # lower case may decompose: the Turkish capital I with a dot
    return " ".join(text.split())


def _plain(text: str) -> str:
    # Apostrophes first, because NFKC makes an acute accent a space; and again, because it makes new ones.
    text = text.translate(APOSTROPHES).translate(INVISIBLE)
    return unicodedata.normalize("NFKC", text).translate(APOSTROPHES)
