"""Counts, money and time as text."""


def counted(count: int, noun: str) -> str:
    """A count with its noun in the right number.

    >>> counted(1, "document"), counted(1200, "question"), counted(2, "reply")
    ('1 document', '1,200 questions', '2 replies')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"
