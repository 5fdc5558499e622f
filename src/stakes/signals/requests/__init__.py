"""Reads real requests: extraction prompts, schemas, system text, follow-ups, in fourteen languages.

The question decides first. Where it says nothing ("Process this document."), the question before it decides, then the
system text, then tools that the model may call. A request is

* high if it asks for a field that is expensive to misread, for extraction, or for a transcription or conversion;
* low if it asks for something cheap (a title, a colour, a description), or is a plain question for neither;
* undecided if nothing in it was recognised. Undecided gets the most expensive tier.

A schema counts as its most expensive field. Boilerplate ("Today's date is …"), instructions about the form of the reply
("answer with a number") and examples do not count.

>>> signal = RequestSignal()
>>> signal("Extract all fields from this invoice as JSON").why
'extraction: "all fields"'
>>> signal("What colour is the logo?").tier
'low'
"""

from stakes.signals.requests.signal import RequestSignal

__all__ = ["RequestSignal"]
