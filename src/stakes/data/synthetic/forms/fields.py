"""The fields of forms: each with its tier, its printed labels and the nouns that questions use.

``themes`` lists the documents on which a field is plausible: (i)nvoices, receipts and orders, (l)etters, memos and
faxes, (r)eports and minutes, (a)pplications and personnel forms, (c)ertificates, permits and legal papers.
No two fields of one theme share a noun, so a question names one value of its page.
"""

from dataclasses import dataclass

from stakes.data.synthetic import values as v
from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.wording import KEYWORD_SHARE, phrase

# ruff: noqa: E501  (a table of one field per line)


@dataclass(frozen=True)
class Field:
    """One kind of value on a form. ``labels``, ``keyword`` and ``plain`` are pools, ``"seen|seen||unseen"``."""

    name: str
    tier: str
    themes: str
    value: v.Value
    opening: str
    labels: str
    keyword: str  # nouns that contain a keyword
    plain: str

    def label(self, dice: Dice) -> str:
        """The label as printed."""
        return dice.pick(pool(self.labels), "wording")

    def noun(self, dice: Dice) -> str:
        """The noun for this field in running text."""
        return dice.choice(pool(self.plain or self.keyword).seen)

    def question(self, dice: Dice) -> Question:
        """A question about this field, with a keyword in the share of its tier."""
        opening, nouns = self.opening, self.plain or self.keyword
        with_keyword, by_opening = dice.chance(KEYWORD_SHARE[self.tier]), opening in ("much", "when")
        if not (with_keyword and by_opening and dice.chance(0.5 if self.keyword else 1.0)):
            opening = "what" if by_opening else opening
            nouns = self.keyword or self.plain if with_keyword else nouns
        text = phrase(opening, dice.pick(pool(nouns), "wording"), dice)
        return Question(text, (), self.tier, None, self.name)


def _high(name: str, themes: str, value: v.Value, opening: str, labels: str, keyword: str, plain: str) -> Field:
    return Field(name, "high", themes, value, opening, labels, keyword, plain)


def _low(name: str, themes: str, build: v.Sized, opening: str, labels: str, keyword: str, plain: str) -> Field:
    return Field(name, "low", themes, v.fair(build), opening, labels, keyword, plain)


_ALL = (
    _high("invoice_number", "i", v.ident, "what", "Invoice Number|Invoice No.|Invoice #||Inv. No.", "invoice number|invoice no.||invoice ID", "invoice #"),
    _high("order_number", "i", v.ident, "what", "Order Number|Order No.|Order #||Order ID", "order number|order no.||order ID", "order #"),
    _high("case_number", "lc", v.ident, "what", "Case Number|Case No.|Case #||Case ID", "case number|case no.", "case #"),
    _high("policy_number", "ac", v.ident, "what", "Policy Number|Policy No.|Policy #", "policy number|policy no.||policy ID", "policy #"),
    _high("reference", "ilrc", v.ident, "what", "Reference|Our Ref.|Ref. No.||Reference No.", "reference number|reference code|reference no.", "reference|ref."),
    _high("customer_id", "il", v.ident, "what", "Customer ID|Client ID|Customer #||Client No.", "customer ID|client ID", "customer #"),
    _high("employee_id", "a", v.ident, "what", "Employee ID|Staff ID|Employee No.", "employee ID|staff ID|employee number", "employee #"),
    _high("account", "ila", v.ident, "what", "Account Number|Account No.|Account", "account number|account no.", "account|account #"),
    _high("serial", "rc", v.ident, "what", "Serial Number|Serial No.|Serial", "serial number|serial no.", "serial"),
    _high("license", "ac", v.ident, "what", "License Number|License No.|License", "license number|license no.||license ID", "license"),
    _high("voucher", "ir", v.ident, "what", "Voucher Number|Voucher No.|Voucher", "voucher number|voucher no.", "voucher"),
    _high("total", "ir", v.money, "much", "Total|Total Amount|Grand Total||Total Sum", "total|total amount||total sum", ""),
    _high("balance", "il", v.money, "much", "Balance Due|Balance", "balance amount", "balance due|balance"),
    _high("tax", "i", v.money, "much", "Tax|Sales Tax|VAT", "tax amount", "tax|sales tax"),
    _high("subtotal", "i", v.money, "much", "Subtotal|Sub-Total", "", "subtotal"),
    _high("deposit", "ila", v.money, "much", "Deposit|Deposit Paid||Down Payment", "deposit amount", "deposit"),
    _high("freight", "i", v.money, "much", "Freight|Shipping||Freight Charge", "shipping cost|freight cost", "freight|shipping"),
    _high("budget", "rl", v.money, "much", "Budget|Approved Budget", "budget amount", "budget|approved budget"),
    _high("salary", "a", v.money, "much", "Salary|Annual Salary||Yearly Salary", "salary amount", "salary|annual salary"),
    _high("fee", "ac", v.money, "much", "Fee|Filing Fee", "fee amount", "fee|filing fee"),
    _high("loan", "al", v.money, "much", "Loan|Loan Amount", "loan amount", "loan"),
    _high("premium", "c", v.money, "much", "Premium|Yearly Premium", "premium amount", "premium"),
    _high("issue_date", "ilrc", v.date, "when", "Issue Date|Date Issued|Issued||Date of Issue", "issue date|date of issue", "day of issue"),
    _high("due_date", "il", v.date, "when", "Due Date|Payment Due|Deadline", "due date", "deadline||due day"),
    _high("delivery_date", "i", v.date, "when", "Delivery Date|Delivered|Delivery", "delivery date|date of delivery", "delivery"),
    _high("expiry_date", "ac", v.date, "when", "Expiry Date|Expires|Valid Until||Expiration", "expiry date", "expiry"),
    _high("birth_date", "a", v.date, "when", "Date of Birth|Birth Date|Born", "date of birth|birth date", "day of birth"),
    _high("meeting_date", "rl", v.date, "when", "Meeting Date|Date of Meeting|Meeting", "meeting date|date of the meeting", "meeting day"),
    _high("phone", "ilrac", v.phone, "what", "Phone|Tel.|Telephone||Phone No.", "phone number|phone||phone no.", "telephone|tel."),
    _high("fax", "ilr", v.phone, "what", "Fax|Fax No.|Fax Number", "fax number|fax|fax no.", ""),
    _high("zip", "ilac", v.postal, "what", "ZIP|Zip Code|Postal Code", "zip code|postal code", "zip|zipcode"),
    _high("discount", "i", v.percent, "what", "Discount|Discount Rate", "discount rate|discount percentage", "discount"),
    _high("interest", "il", v.percent, "what", "Interest|Interest Rate|APR", "interest rate", "interest"),
    _high("growth", "r", v.percent, "what", "Growth|Growth Rate", "growth rate|percentage of growth", "growth"),
    _high("quantity", "i", v.count, "what", "Quantity|Qty|Units", "quantity|number of units", "qty|units"),
    _high("shares", "cr", v.count, "what", "Shares|Shares Held|No. of Shares", "number of shares", "shares|shares held"),
    _high("weight", "i", v.weight, "what", "Net Weight|Weight", "weight value", "net weight|weight"),
    _high("area", "ac", v.weight, "what", "Length|Total Length", "total length", "length"),
    _low("customer", "i", v.person, "who", "Customer|Bill To|Customer Name||Billed To", "", "customer"),
    _low("contact", "ilr", v.person, "who", "Contact|Contact Person", "", "contact|contact person"),
    _low("manager", "ilra", v.person, "who", "Manager|Supervisor", "", "manager|supervisor"),
    _low("author", "rl", v.person, "who", "Author|Prepared By|Written By||Drafted By", "", "author"),
    _low("chair", "r", v.person, "who", "Chair|Chaired By", "", "chair"),
    _low("applicant", "ac", v.person, "who", "Applicant|Applicant Name|Name", "", "applicant"),
    _low("witness", "c", v.person, "who", "Witness|Witnessed By", "", "witness"),
    _low("officer", "cl", v.person, "who", "Officer|Case Officer", "", "officer|case officer"),
    _low("doctor", "a", v.person, "who", "Doctor|Physician", "", "doctor|physician"),
    _low("vendor", "i", v.company, "who", "Vendor|Supplier|Seller||Sold By", "", "vendor|supplier|seller"),
    _low("carrier", "i", v.company, "who", "Carrier|Ship Via|Shipper", "", "carrier|shipper"),
    _low("bank", "ila", v.company, "what", "Bank|Bank Name", "", "bank|bank name"),
    _low("employer", "a", v.company, "who", "Employer|Employed By", "", "employer"),
    _low("insurer", "c", v.company, "who", "Insurer|Insured By", "", "insurer"),
    _low("client", "r", v.company, "who", "Client|Prepared For", "", "client"),
    _low("city", "ilac", v.word, "what", "City|Town", "", "city|town"),
    _low("region", "ir", v.word, "what", "Region|District|Territory", "", "region|district"),
    _low("branch", "ial", v.word, "what", "Branch|Branch Office", "", "branch|branch office"),
    _low("warehouse", "i", v.word, "what", "Warehouse|Depot", "", "warehouse|depot"),
    _low("site", "rc", v.word, "what", "Site|Location||Site Name", "", "site|location"),
    _low("country", "ac", v.word, "what", "Country|Country of Birth", "", "country"),
    _low("department", "rla", v.thing, "what", "Department|Dept.|Division", "", "department|division"),
    _low("project", "rl", v.thing, "what", "Project|Project Name", "", "project|project name"),
    _low("subject", "l", v.thing, "what", "Subject|Re|Topic", "", "subject|topic"),
    _low("product", "i", v.thing, "what", "Product|Product Name", "", "product|product name"),
    _low("position", "a", v.thing, "what", "Position|Job Title", "", "position|job title"),
    _low("course", "c", v.thing, "what", "Course|Course Title", "", "course|course title"),
    _low("vessel", "c", v.thing, "what", "Vessel|Ship", "", "vessel|ship"),
    _low("method", "r", v.thing, "what", "Method|Test Method", "", "method|test method"),
    _low("street", "ilac", v.road, "what", "Street|Address", "", "street|address"),
    _low("brand", "i", v.word, "what", "Brand|Make", "", "brand|make"),
    _low("school", "a", v.thing, "what", "School|College", "", "school|college"),
    # low tier with a keyword: locators, times of a schedule, names that contain a keyword
    _low("room", "rl", v.locator, "what", "Room|Room No.", "room number|room no.", "room"),
    _low("section", "rc", v.locator, "what", "Section|Section No.", "section number|section no.", "section"),
    _low("form", "ac", v.locator, "what", "Form|Form No.", "form number|form no.", "form"),
    _low("dock", "i", v.locator, "what", "Dock|Dock No.", "dock number|dock no.", "dock"),
    _low("start", "rl", v.hour, "what", "Start|Start Time", "start time|time of the start", "start"),
    _low("price_list", "i", v.thing, "what", "Price List|Pricelist", "price list", "pricelist"),
    _low("code_name", "r", v.word, "what", "Code Name|Codename", "code name", "codename"),
    _low("cost_center", "la", v.word, "what", "Cost Center|Cost Centre", "cost center", ""),
    _low("rate_plan", "c", v.word, "what", "Rate Plan|Plan", "rate plan", "plan"),
)  # fmt: skip

FIELDS = {field.name: field for field in _ALL}
THEMES = {theme: tuple(f for f in _ALL if theme in f.themes) for theme in "ilrac"}
