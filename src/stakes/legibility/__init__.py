"""OCR as a model: measure at which token budget text on a page is still legible, without a VLM and without a GPU.

What it is for. Most of the error of a small visual-token budget on documents is physical: the image is resized, and
below some size print cannot be read by anyone. An OCR engine measures that part alone. ``load("ocr")`` is a model like
any other, so calibration, evaluation and the arms run on it unchanged, on real pages, in minutes on a CPU. Use it to
see how error curves of the tiers differ on your own pages before you pay for a single answer, which words of a page a
budget makes illegible, and how much of a published effect is legibility.

How it works. A page is read once at native size, and the acceptable answers are located in its text. At a budget the
image is resized exactly as for the VLM family, its lines are detected and read again, and the answer counts as legible
when the characters at its location still match. Everything measured this way is labelled ``basis: legibility``.

Limits. This is legibility, not a VLM's error:

- The location of the answer is known, so nothing has to be understood or searched for. A VLM also misses print that is
  legible, and sometimes guesses print that is not.
- Answers that are not printed (counted, computed, handwritten) cannot be located. They are excluded and counted.
- Only resizing is measured; deletion removes tokens that OCR does not see.
- The engine has a threshold of its own: text of 11 pixels is read in 85 % of cases, of 8 pixels in 55 %, below 5 never.
  The published VLM needs about 1.4 times the tokens (docs/results.md).

Files
    model.py             ``Legibility``: the model; ``locate`` finds the answers, ``answer`` reads them at a budget
    answer_locations.py  where an answer is printed, and what is read there now
    text_match.py        text normalization and fuzzy matching
    engine.py            RapidOCR: detection of lines, recognition of one line
    page_cache.py        lines of a page at a size, read once and cached on disk
    word_map.py          every word of a page with the budget from which it is legible; the height of small print

The study on DocVQA, ChartQA and SROIE is ``stakes.experiments.legibility``. Needs the extra ``[ocr]``.
"""
