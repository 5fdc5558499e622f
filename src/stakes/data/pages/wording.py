"""How a question is asked: an opening and a noun, some with one of the paper's keywords and some without.

The keyword rule should agree with a page's own tier about as often as the paper found (0.79, kappa 0.58). So a
high-stakes question is *loud* (has a keyword: "What is the phone number?") 72 times in 100, and otherwise *plain*
("What is the tel.?"); a low-stakes one is loud 14 times in 100 ("What is the room number?"). On charts and
infographics a low-stakes question is loud where it quotes a percentage.

    ask(FIELDS["phone"], dice).text -> "Give the phone number."
"""

from stakes.data.pages.canvas import Ask
from stakes.data.pages.dice import Dice, pool

# Of the questions that could be asked either way; most low-stakes fields have no way with a keyword.
LOUD_SHARE = {"high": 0.73, "low": 0.6}

# {} is the noun. "How much" and "When" are keywords themselves, so their openings make any noun loud.
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


def capitalise(text: str) -> str:
    """The text with its first letter as a capital and the rest untouched."""
    return text[:1].upper() + text[1:]


def phrase(opening: str, noun: str, dice: Dice) -> str:
    """A question from an opening's kind and a noun."""
    text = dice.pick(OPENINGS[opening], "wording").format(noun)
    return text.replace("..", ".").replace(".?", "?")


def fill(templates: str, dice: Dice, **names: str) -> str:
    """A question from templates with named gaps, as ``"How much is {row}?|What did {row} cost?"``."""
    return dice.pick(pool(templates), "wording").format(**names)


def choose(tier: str, loud: str, plain: str, dice: Dice) -> str:
    """The loud or the plain templates, whichever there are, in the tier's proportion."""
    if loud and plain:
        return loud if dice.chance(LOUD_SHARE[tier]) else plain
    return loud or plain


def about(field: str, tier: str, loud: str, plain: str, dice: Dice, **names: str) -> Ask:
    """A question about a field, loud or plain."""
    return Ask(field, tier, fill(choose(tier, loud, plain, dice), dice, **names))
