"""What a document says that no one asks about: sentences of business prose, and headings of sections."""

from stakes.data.pages.dice import Dice, pool

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
COLUMN_TOTALS = ("Total", "All", "Sum")


def sentence(dice: Dice) -> str:
    """One sentence."""
    return dice.pick(SENTENCES, "words") + "."
