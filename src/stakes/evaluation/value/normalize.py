"""One spelling for the many Unicode forms of digits, spaces, dashes and apostrophes.

>>> normalize("１２\u00a0０００\u202f€ \u2013 O\u2019Brien")
"12 000 € - o'brien"
"""

import re
import unicodedata

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7\u2796\ufe58\ufe63\uff0d"
_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u00b4\u0060\u2032\uff07"
_ARABIC = {"\u066b": ".", "\u066c": ",", "\u066a": "%", "\u060c": ","}  # decimal, thousands, percent, comma
_ISO_T = re.compile(r"(?<=\d)t(?=\d\d:)")

# A letter is any character that is not a space, a digit, punctuation or a symbol. Named by what it is not, because
# vowel signs of Indic scripts belong to words too. Han, kana, Hangul and Thai have no spaces between words: there,
# every character stands for itself.
_UNSPACED_RANGES = r"\u0e01-\u0e3a\u0e40-\u0e4e\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
UNSPACED = f"[{_UNSPACED_RANGES}]"
LETTER = (
    r"[^\s!-@\[-`{-~\u007f-\u00bf×÷\u060c\u061b\u061f\u06d4\u0964\u0965\u09f3\u0e3f\u2000-\u206f\u20a0-\u20cf"
    rf"\u2190-\u2bff\u3000-\u3004\u3008-\u303f\ufe10-\ufe1f\ufe30-\ufe6f{_UNSPACED_RANGES}]"
)


class _Plain(dict[int, str]):
    """A table for ``str.translate`` that works out each character when it is first seen."""

    def __missing__(self, code: int) -> str:
        self[code] = _plain(chr(code))
        return self[code]


def _plain(char: str) -> str:
    if char.isdecimal():  # Arabic-Indic, Devanagari, full width, …
        return str(unicodedata.decimal(char))
    if char in _DASHES:
        return "-"
    if char in _APOSTROPHES:
        return "'"
    if unicodedata.category(char) == "Cf":  # marks of direction, joiners, soft hyphens
        return ""
    form = unicodedata.decomposition(char)
    if form.startswith("<super>") and char.isdigit():  # 5² is not 52
        return f"^{unicodedata.digit(char)}"
    if form.startswith("<fraction>"):  # 2½ is not 21/2
        return " " + unicodedata.normalize("NFKC", char).replace("\u2044", "/")
    return _ARABIC.get(char, char)


_TABLE = _Plain()


def normalize(text: str) -> str:
    """Lower case, plain digits, single spaces, "-" for every dash and "'" for every apostrophe."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_TABLE))
        text = unicodedata.normalize("NFC", text.casefold()).replace("i\u0307", "i")
    else:
        text = text.lower().replace("`", "'")
    text = " ".join(text.split())
    return _ISO_T.sub(" ", text) if "t" in text else text
