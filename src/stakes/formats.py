"""Counts, money and time as text."""


def counted(count: int, noun: str) -> str:
    """A count with its noun in the right number.

    >>> counted(1, "document"), counted(1200, "question"), counted(2, "reply")
    ('1 document', '1,200 questions', '2 replies')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def format_dollars(amount: float) -> str:
    """An amount of money.

    >>> format_dollars(1234.5), format_dollars(0.0456), format_dollars(3e-5)
    ('$1,234.50', '$0.0456', 'less than $0.001')
    """
    if 0 < amount < 0.001:
        return "less than $0.001"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.3g}"


def format_seconds(seconds: float) -> str:
    """A duration in the largest fitting unit.

    >>> format_seconds(0.25), format_seconds(95), format_seconds(7260)
    ('250 ms', '95 s', '2.0 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
