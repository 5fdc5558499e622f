"""The metric ``value``: amounts as numbers, dates as dates, identifiers whole, text as whole words.

``normalize`` makes one spelling of many Unicode forms. ``scan`` cuts a text into items: amounts (``amounts``, with the
names in ``units``), dates and times (``dates``), identifiers and words. ``match`` compares the items of a prediction
with those of an answer. The rules, with examples: docs/metrics.md.

No library does this. price-parser reads "42.90 or 43.00" and "(42.90)" as 42.90 and "H-514" as 514; dateparser takes
milliseconds, reads "5" as a day and cannot read 20180312; babel needs the locale, which a prediction does not state.
"""
