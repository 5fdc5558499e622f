"""The texts of pages and questions: question templates with and without keywords, and filler prose.

The keyword rule should agree with a page's own tier about as often as the paper found (0.79, kappa 0.58). So 72 % of
high-tier questions contain one of the paper's keywords ("What is the phone number?") and the others are plain ("What
is the tel.?"); 14 % of low-tier questions contain one ("What is the room number?"). On charts and infographics a
low-tier question contains one where it quotes a percentage.

    about("phone", "high", "What is the phone number?", "What is the tel.?", dice).text
"""

from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.page import Question

# Share of keyword questions where both wordings exist; most low-tier fields have no wording with a keyword.
KEYWORD_SHARE = {"high": 0.73, "low": 0.6}

# {} is the noun. "How much" and "When" are keywords themselves, so these openings make a keyword question of any noun.
OPENINGS = {
    "what": pool(
        "What is the {}?|What is the {}?|What is the {}?|What is the {}?|Give the {}.|Read the {}.|What {} is given?"
        "|Which {} is printed?|What is the {} given here?"
        "||Find the {}.|Tell me the {}.|What {} is printed here?|State the {}."
        "||What's the {}?|Please give the {}.|I need the {}.|Look up the {}.|Write down the {}.|Can you read the {}?"
        "|{}?|The {}, please.|Show me the {}.|Which {} does the page give?|What {} do you see?|Copy the {}."
    ),
    "who": pool(
        "Who is the {}?|Who is the {}?|What is the name of the {}?|Name the {}.|Who is given as {}?"
        "||Who is named as {}?|Give the name of the {}."
        "||Who's the {}?|I need the {}.|Which person is the {}?|Look up the {}.|{}?|The {}, please.|Who was the {}?"
        "|Please name the {}.|Write down who is {}.|What {} do you see?"
    ),
    "much": pool(
        "How much is the {}?|How much is the {}?|How much was the {}?||How much {} is given?"
        "||How much does the {} come to?|How much for the {}?"
    ),
    "when": pool("When is the {}?|When was the {}?||When is the {} given?||When's the {}?|When does it say the {} is?"),
}


def phrase(opening: str, noun: str, dice: Dice) -> str:
    """A question from an opening's kind and a noun."""
    text = dice.pick(OPENINGS[opening], "wording").format(noun)
    return text.replace("..", ".").replace(".?", "?")


def about(field: str, tier: str, keyword: str, plain: str, dice: Dice, **names: str) -> Question:
    """A question about a field, without its answer.

    ``keyword`` and ``plain`` are pools of templates with named gaps, as ``"How much is {row}?|What did {row} cost?"``.
    Where both are given, the tier's ``KEYWORD_SHARE`` decides.
    """
    templates = keyword or plain
    if keyword and plain and not dice.chance(KEYWORD_SHARE[tier]):
        templates = plain
    return Question(dice.pick(pool(templates), "wording").format(**names), (), tier, None, field)


SENTENCES = pool(
    "Thank you for your letter of last week|We have reviewed the papers that you sent to our office"
    "|All prices are subject to change without further notice|Please keep this copy for your own records"
    "|The work was carried out in line with the agreed terms|Goods remain our property until they are paid in full"
    "|A copy of the signed form must be returned within thirty days|The committee heard the report and took note of it"
    "|Members were asked to send their comments before the next session|No further action is needed at this point"
    "|Any claim must be made in writing within fourteen days|The results are in line with those of earlier studies"
    "|Samples were stored in a cool dry place and tested twice"
    "|Further details can be found in the annex to this document"
    "|This offer is valid only when signed by both parties|We trust that this meets with your approval"
    "|The auditors found no reason to doubt the accounts|Payment can be made by transfer or by check"
    "|Costs were shared between the two divisions as before|The increase was mainly due to higher sales abroad"
    "|Staff should report any damage to the office at once|It was agreed to put the matter on the next agenda"
    "|The tests were repeated under the same conditions|Please do not hesitate to write if you have any questions"
    "|Returned items must be in their original packing|The new line will be presented to the trade in spring"
    "|Both plants worked at full capacity during the period|Your early reply would be much appreciated"
    "|The undersigned declares that the above is true and complete|Delivery is made at the risk of the buyer"
    "|Smokers and non smokers took part in equal shares|The panel was asked to rate taste and strength"
    "||We look forward to hearing from you soon|The terms of the contract apply in all other respects"
    "|The survey was carried out by mail and in person"
)
SECTIONS = pool(
    "General|Details|Summary|Background|Particulars|Terms|Remarks|Overview|Results|Office Use Only|Conditions|Notes"
    "||Key Facts|Further Details"
)
TITLES = {
    "i": pool("INVOICE|Invoice|Purchase Order|DELIVERY NOTE|Statement of Account|ORDER FORM||Pro Forma Invoice"),
    "l": pool("MEMORANDUM|Memo|Inter-Office Letter|NOTICE|Confirmation||Circular"),
    "r": pool("REPORT|Progress Report|Minutes of Meeting|Field Study|QUARTERLY REVIEW||Technical Note"),
    "a": pool("APPLICATION FORM|Application|Personnel Record|ENROLMENT FORM|Claim Form||Registration"),
    "c": pool("CERTIFICATE|Certificate|PERMIT|Certificate of Record|Deed of Title||Declaration"),
}
ROLES = pool("Director|Secretary|Head of Office|Treasurer|Registrar|Vice President||Deputy Director")
CHECKS = pool("New|Renewal|Urgent|Copy|Paid|Open|Full time|Part time|Domestic|Export|Yes|No||Other")


def sentence(dice: Dice) -> str:
    """One sentence."""
    return dice.pick(SENTENCES, "words") + "."
