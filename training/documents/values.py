"""The labels of forms with the kind of value that belongs to each, and a value of each kind."""
# ruff: noqa: E501  (one kind per line)

from collections.abc import Callable

from training.documents import words

from stakes.data.synthetic.dice import Dice, pool

KINDS: dict[str, Callable[[Dice], str]] = {
    "person": words.person,
    "company": words.company,
    "street": words.street,
    "city": words.city,
    "state": words.state,
    "zip": lambda dice: f"{dice.randint(1000, 99999):05d}",
    "phone": words.phone,
    "date": words.date,
    "month": words.month,
    "money": words.money,
    "count": words.count,
    "percent": words.percent,
    "code": words.code,
    "clock": words.clock,
    "role": lambda dice: dice.pick(words.ROLES, "words"),
    "topic": words.topic,
    "word": words.word,
    "thing": lambda dice: dice.pick(words.THINGS, "words").title(),
}
HIGH = {"zip", "phone", "date", "month", "money", "count", "percent", "code", "clock"}

LABELS = {
    "person": "Name|Contact|Contact Person|Requested By|Approved By|Prepared By|Manager|Supervisor|Originator|Employee|Reviewer|Patient|Applicant|Buyer|Investigator|Owner||Witness|Clerk",
    "company": "Company|Supplier|Vendor|Agency|Payee|Customer|Organization|Sponsor|Account|Employer|Contractor|Publisher||Carrier|Dealer",
    "street": "Address|Street Address|Mailing Address|Office Address|Home Address||Street",
    "city": "City|Location|Place of Birth|Branch|Site|Region|Market|Area||Town|District",
    "state": "State",
    "zip": "Zip|Zip Code",
    "phone": "Phone|Telephone|Phone No.|Phone Number|Fax|Fax No.|Home Phone|Office Phone||Tel.|Telephone No.",
    "date": "Date|Start Date|End Date|Due Date|Date Received|Date of Birth|Date Issued|Delivery Date|Expiration Date|Effective Date|Date Prepared|Date Closed||Date Mailed|Date Filed",
    "month": "Period|Month|Fiscal Period|Issue",
    "money": "Amount|Total|Total Cost|Budget|Cost|Fee|Amount Due|Price|Estimated Cost|Salary|Deposit|Total Amount||Net Cost|Value",
    "count": "Quantity|Number of Copies|Units|Pieces|Attendance|No. of Pages|Volume|Sample Size|Number of Employees||Cases|Circulation",
    "percent": "Share|Rate|Discount|Response Rate|Moisture||Coverage",
    "code": "Code|Account No.|File No.|Order No.|Project No.|Form No.|Invoice No.|Vendor Number|Job No.|Contract No.|Control Number|Voucher No.|Study No.|Charge Code||Case No.|Check No.",
    "clock": "Time|Time Received|Arrival|Departure",
    "role": "Title|Position|Job Title||Rank",
    "topic": "Project|Subject|Project Name|Description|Program|Purpose|Study Title|Activity||Event|Assignment",
    "word": "Department|Division|Section|Product|Brand|Type|Category|Grade|County||Unit|Class",
    "thing": "Material|Item|Commodity|Sample||Ingredient",
}  # fmt: skip


ONCE = {"street", "state", "zip", "phone", "month", "clock", "role"}  # two labels of these kinds ask for the same


def entries(dice: Dice, number: int) -> list[tuple[str, str, str]]:
    """So many different labels, each with its kind and a value."""
    found: dict[str, tuple[str, str, str]] = {}
    while len(found) < number:
        kind = dice.choice(tuple(LABELS))
        label = dice.pick(pool(LABELS[kind]), "words")
        if kind not in ONCE or kind not in {other for _, other, _ in found.values()}:
            found.setdefault(label, (label, kind, KINDS[kind](dice)))
    return list(found.values())
