"""The questions about office documents, in many wordings; part of them is held out of training.

Desk(dice).ask("sender")                        # (Question("Who is the sender of the letter?", ...),)
Desk(dice).ask("label", "Account No.")          # (Question("What is the Account No.?", ...),)
"""
# ruff: noqa: E501  (one field per line)

from dataclasses import dataclass

from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.page import Question

QUESTIONS = {
    "title": "What is the title of the document?|What is the title?|What is the heading of the document?|What is the heading?|What is the title at the top?|What is this document about?|Give the title.|What is the name of the document?|What is the main heading?|What is the title of the page?|title||Read the heading.|What heading is printed at the top?",
    "kind": "What kind of document is this?|What type of document is this?|What is this document?|What kind of form is it?|What type of form is given here?|Which document is this?||Name the type of document.",
    "company": "What is the name of the company?|What is the name of the company at the top?|Which company is mentioned in the letterhead?|What is the name of the organization?|Which organization is this from?|What is the letterhead?|company|Whose letterhead is it?|What is the name of the institution?||Name the company in the letterhead.",
    "date": "What is the date?|What is the date mentioned in the document?|What is the date of the letter?|When was it written?|What is the date on the document?|What date is mentioned at the top?|What is the date of the document?|What is the date given?|date|When is the document dated?|Which date is on the page?||Find the date.|What is the date at the top of the page?",
    "addressee": "To whom is the letter addressed?|To whom is this addressed?|Who is the letter to?|Who is the addressee?|What is the name of the addressee?|Who is it addressed to?|To whom was this sent?|Who is the recipient?|Who is the receiver?||Name the addressee.",
    "sender": "Who is the sender?|Who is the letter from?|From whom is the letter?|Who wrote the letter?|Who signed the letter?|Who is it from?|What is the name of the sender?|Who is the author?|By whom is the letter signed?|From whom is it?||Name the sender.",
    "to": 'Who is in the "To" field?|To whom is the memo addressed?|Who is the memo to?|To whom is it addressed?|What is mentioned in the "To" field?|Who is the recipient?|To whom is this sent?|to||Who receives the memo?',
    "from": 'Who is in the "From" field?|From whom is the memo?|Who is the memo from?|Who is the sender?|What is mentioned in the "From" field?|Who wrote the memo?|from||Who sends the memo?',
    "subject": "What is the subject?|What is the subject of the letter?|What is the subject of the document?|What is it about?|What is the Re line?|What is mentioned in the subject field?|What is the subject line?|subject|Regarding what is this written?||Read the subject.",
    "copy": "Who is copied?|Who gets a copy?|To whom is the copy sent?|Who is in the cc field?|Who is mentioned in cc?|cc||Who receives a copy?",
    "role": "What is the title of {}?|What is the position of {}?|What is the designation of {}?|What is {}'s title?|Who is {}?||Which position has {}?",
    "holder": "Who is the {}?|What is the name of the {}?|Who is given as {}?|Name the {}.||Who holds the title of {}?",
    "street": "What is the street address of the company?|What is the address in the letterhead?|In which street is the company?|What is the street in the letterhead?|Where is the office?||Read the street in the letterhead.",
    "city": "Which city is mentioned in the address?|What is the city?|In which city is it?|Which town is it?|city||Name the city.",
    "zip": "What is the zip code?|What is the ZIP?|zip code||Read the zip code.",
    "phone": "What is the phone number?|What is the telephone number?|What is the phone no.?|What is the tel. number?|phone||Find the phone number.",
    "fax": "What is the fax number?|What is the fax no.?|To which number was it faxed?|fax||Find the fax number.",
    "reference": "What is the file number?|What is the reference number?|What is the number of the file?|Which file is it?||Find the reference number.",
    "page": "What is the page number?|What is the page no. mentioned in this document?|Which page is this?|What page number is at the bottom?|page||Read the page number.",
    "stamp": "What is the number at the bottom of the page?|What is the number at the bottom right?|Which number is stamped on the page?|What is the document number?||Read the number at the bottom.",
    "pages": "How many pages are there?|How many pages including cover page?|What is the number of pages?|How many pages were sent?||Give the number of pages.",
    "label": 'What is the {}?|What is the {}?|What is the {} given?|What is mentioned as {}?|What is written in the "{}" field?|What is the {} mentioned in the document?|What is the value of {}?|{}|{}?|Give the {}.||What does the {} field say?|Read the {}.',
    "person": "Who is the {}?|What is the name of the {}?|Who is mentioned as {}?|Which name is given for {}?|Name the {}.||Whose name is in the {} field?",
    "fact": "{}",
    "cell": "What is the {1} of {0}?|What is the {1} for {0}?|How much is the {1} for {0}?|What is {1} for {0}?|What is the value of {0} under {1}?|{0}, {1}||Give the {1} for {0}.",
    "yearly": "What is the value for {0} in {1}?|How much was {0} in {1}?|What was {0} in {1}?|What is the figure of {0} for {1}?|{0} in {1}?||Give {0} for {1}.",
    "sum": "What is the total {}?|How much is the total {}?|What is the total of {}?|What is the {} total?||Give the total {}.",
    "row": "Which {0} has {1} of {2}?|What is the {0} with {1} {2}?|For which {0} is {1} {2}?||Whose {1} is {2}?",
    "caption": "What is the title of the table?|What does the table show?|What is the heading of the table?|What is the table about?||Read the title of the table.",
    "time": "At what time is {}?|When does {} begin?|What time is {} scheduled?|When is {}?||What is the time of {}?",
    "event": "What is scheduled at {}?|What takes place at {}?|What is at {}?|Which item begins at {}?||What happens at {}?",
    "speaker": "Who is the speaker of {}?|Who speaks on {}?|Who is in charge of {}?|Who presents {}?||Who talks about {}?",
    "place": "Where is the meeting?|Where is it held?|What is the place of the meeting?|What is the venue?|What is the location?||Name the place of the meeting.",
}  # fmt: skip
FIELDS = tuple(QUESTIONS)
HIGH = ("date", "zip", "phone", "fax", "reference", "page", "stamp", "pages", "cell", "yearly", "sum", "time")

# A sentence with one value in it, the kind of the value, and questions about it.
FACTS = (
    ("The meeting will be held on {} in the main office.", "date", "When will the meeting be held?|What is the date of the meeting?|On which date is the meeting?"),
    ("Please return the signed form before {} by mail.", "date", "When should the form be returned?|What is the last date to return the form?"),
    ("The work was started on {} and is nearly complete.", "date", "When was the work started?|On which date did the work start?"),
    ("The total cost of the program is {} for the year.", "money", "What is the total cost of the program?|How much does the program cost?|What is the cost of the program?"),
    ("A check for {} is enclosed with this letter.", "money", "What is the amount of the check?|How much is the check for?|What is the check amount?"),
    ("The budget for the study was set at {} last year.", "money", "What is the budget for the study?|How much is the budget of the study?"),
    ("We received a grant of {} from the board.", "money", "How much was the grant?|What is the amount of the grant?"),
    ("The survey covered {} people in three states.", "count", "How many people did the survey cover?|What is the number of people in the survey?"),
    ("About {} copies were sent to the stores.", "count", "How many copies were sent?|What is the number of copies?"),
    ("The sample contained {} of water by weight.", "percent", "What is the percentage of water?|How much water did the sample contain?"),
    ("Sales have grown by {} since last year.", "percent", "By what percentage have sales grown?|How much have sales grown?"),
    ("Please send all papers to {} of our office.", "person", "To whom should the papers be sent?|Who should get the papers?"),
    ("The project is directed by {} at the plant.", "person", "Who directs the project?|By whom is the project directed?"),
    ("You may call {} for further details.", "person", "Whom should one call for details?|Who can be called for further details?"),
    ("The next conference will take place in {} this fall.", "city", "Where will the next conference take place?|In which city is the next conference?"),
    ("The samples were shipped from {} by truck.", "city", "From where were the samples shipped?|Where were the samples shipped from?"),
    ("The order number of the new pump is {} as before.", "code", "What is the order number of the pump?|Which number has the order of the pump?"),
    ("The contract was signed with {} in the spring.", "company", "With whom was the contract signed?|Which company signed the contract?"),
    ("The analysis was done by {} under contract.", "company", "Who did the analysis?|By whom was the analysis done?"),
    ("The room is free from {} on both days.", "clock", "From what time is the room free?|When is the room free?"),
    ("Call me at {} if you need more copies.", "phone", "What number should be called for more copies?|At which number can he be called?"),
)  # fmt: skip


@dataclass(frozen=True)
class Desk:
    """Writes the questions of one document."""

    dice: Dice

    def ask(self, field: str, *nouns: str, high: bool | None = None) -> tuple[Question, ...]:
        """A question about a field; in training 35 % have a second wording."""
        number = 2 if self.dice.training and self.dice.chance(0.35) else 1
        tier = "high" if (field in HIGH if high is None else high) else "low"
        templates = [self.dice.pick(pool(QUESTIONS[field]), "wording") for _ in range(number)]
        texts = dict.fromkeys(template.format(*nouns) for template in templates)
        return tuple(Question(text, (), tier, None, field) for text in texts)
