"""The words of one receipt: labels in twelve languages, and the questions about each field.

    till = Till.draw(dice)
    till.label("total")                  # "SUMME" on a German receipt
    till.questions("total")              # (Question("What is the total amount?", ...),)

Labels are written without accents, as many printers do. Part of the English labels and of the questions is held out of
training (``stakes.data.synthetic.dice.pool``).
"""
# ruff: noqa: E501  (one label or field per line)

from dataclasses import dataclass

from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.receipts.countries import AmountStyle, Country, choose
from stakes.data.synthetic.receipts.lines import Line, Span, rule, span

ENGLISH = {
    "total": "TOTAL|TOTAL|TOTAL|TOTAL|GRAND TOTAL|TOTAL AMOUNT|TOTAL DUE|NET TOTAL|AMOUNT DUE|TOTAL PAYABLE|BALANCE DUE|TOTAL AMT|AMOUNT PAYABLE|TOTAL TO PAY|NET AMOUNT|TOTAL SALE|BILL TOTAL|TOTAL PRICE|TO PAY|BALANCE TO PAY|AMT DUE|PLEASE PAY|TOTAL CHARGE||FINAL TOTAL|PAYABLE AMOUNT|INVOICE TOTAL",
    "inclusive": "TOTAL INCL. {tax}|TOTAL (INCL {tax})|TOTAL INCLUDING {tax}|TOTAL {tax} INCLUDED|TOTAL INC {tax}|AMOUNT INCL {tax}||TOTAL WITH {tax}",
    "rounded": "TOTAL ROUNDED|ROUNDED TOTAL|TOTAL AFTER ROUNDING|ROUNDED AMOUNT|CASH TOTAL|TO PAY ROUNDED||ROUNDED BILL",
    "subtotal": "SUBTOTAL|SUB TOTAL|SUB-TOTAL|SUBTOTAL|BEFORE DISCOUNT|GROSS AMOUNT|ITEMS TOTAL|GROSS TOTAL|GOODS TOTAL|AMOUNT||SUBTTL",
    "exclusive": "TOTAL EXCL. {tax}|TOTAL EX {tax}|TOTAL EXCLUDING {tax}|NET OF {tax}|NET SALES|TAXABLE AMOUNT|TOTAL BEFORE TAX|AMOUNT EXCL {tax}||TOTAL WITHOUT {tax}",
    "cash": "CASH|CASH|CASH|CASH TENDERED|TENDERED|PAID|CASH RECEIVED|AMOUNT TENDERED|PAYMENT|AMT RECEIVED|AMOUNT PAID|CASH PAID|TENDER||CASH IN",
    "change": "CHANGE|CHANGE|CHANGE|CHANGE DUE|CASH CHANGE|CHANGE RETURNED|BALANCE|YOUR CHANGE||CHANGE GIVEN",
    "card": "VISA|MASTERCARD|CARD|DEBIT CARD|CREDIT CARD|AMEX|VISA CARD|CREDIT|DEBIT|E-WALLET|EFTPOS|CARD PAYMENT|CARD SALE||CONTACTLESS",
    "rounding": "ROUNDING|ROUND OFF|CASH ROUNDING|ROUNDING ADJUSTMENT|ROUNDED BY|ADJUSTMENT||ROUNDING DIFF",
    "discount": "DISCOUNT|DISC|TOTAL DISCOUNT|LESS DISCOUNT|TOTAL SAVINGS|DISCOUNT AMT|MEMBER DISC|PROMO||REBATE",
    "service": "SERVICE CHARGE|SVC CHG 10%|SERVICE CHG|SERVICE|TIP|DELIVERY|SERVICE CHARGE (10%)||SERV. CHARGE",
    "count": "ITEM COUNT|TOTAL QTY|NO. OF ITEMS|TOTAL ITEMS|ITEMS|ARTICLES|PIECES|TOTAL QUANTITY|NO OF ITEMS||ITEMS SOLD",
    "date": "DATE|DATE|DATE|DATE|INVOICE DATE|BILL DATE|DATE/TIME|TRANS DATE|RECEIPT DATE|DATE & TIME|SALES DATE|DT|DOC DATE|TXN DATE|ORDER DATE||DATE OF SALE|ISSUED ON",
    "time": "TIME|TIME|TIME|BILL TIME|TM||TIME OF SALE",
    "number": "RECEIPT NO|INVOICE NO|BILL NO|RECEIPT #|INV NO|DOC NO|DOCUMENT NO|ORDER NO|INVOICE #|TRANS NO|CHECK #|TICKET|VOUCHER NO|RCPT NO|SLIP NO|SALE #|TRANSACTION|CHK NO|ORDER|INVOICE NUMBER|RECEIPT NUMBER||SALE NO|DOCKET NO",
    "phone": "TEL|TEL|TEL NO|PHONE|PH|TELEPHONE|TEL/FAX|CALL||TELEPHONE NO|CONTACT",
    "tax_id": "{tax} REG NO|{tax} NO|{tax} ID|TAX ID|TIN|{tax} REG|{tax} ID NO|{tax} NO.|REG NO||{tax} NUMBER",
    "registration": "REG. NO|COMPANY NO|COMPANY REG NO|BUSINESS NO|LICENSE NO|TRADE LICENSE|REGISTERED NO||BUSINESS REG",
    "cashier": "CASHIER|CASHIER|SERVED BY|CASHIER NAME|SERVER|OPERATOR|CLERK|STAFF|SALESPERSON|USER|ATTENDANT||SOLD BY",
    "item": "ITEM|DESCRIPTION|DESC|PRODUCT|ITEM NAME|ITEMS|CODE / NAME|ARTICLE||GOODS",
    "quantity": "QTY|QTY|QUANTITY|PCS|QNT||UNITS",
    "price": "PRICE|UNIT PRICE|UNIT|PER UNIT|RATE|EACH|PRICE EA||UNIT COST",
    "amount": "AMOUNT|TOTAL|AMT|AMOUNT|PRICE|VALUE|SUM||LINE TOTAL",
    "code": "CODE|TAX CODE|TAX|RATE||CLASS",
    "summary": "{tax} SUMMARY|TAX SUMMARY|{tax} ANALYSIS|TAX DETAILS|{tax} BREAKDOWN|SUMMARY OF {tax}||TAX TABLE",
    "title": "TAX INVOICE|RECEIPT|INVOICE|TILL RECEIPT|VAT RECEIPT|CASH SALE|STORE RECEIPT|SALES RECEIPT|CASH RECEIPT|BILL|CUSTOMER COPY|GUEST CHECK|*** RECEIPT ***|TABLE BILL|SALES SLIP|DUPLICATE|CREDIT NOTE||SALES INVOICE|RETAIL INVOICE",
    "thanks": "THANK YOU|THANK YOU|THANKS FOR YOUR VISIT|HAVE A NICE DAY|SEE YOU SOON|RETURNS ACCEPTED WITH PROOF OF PURCHASE|KEEP THIS SLIP FOR YOUR RECORDS|PRICES INCLUDE TAX|FOLLOW US ONLINE|TELL US HOW WE DID|JOIN OUR LOYALTY CLUB|OPEN SEVEN DAYS A WEEK|TIPS ARE NOT INCLUDED|CHECK YOUR CHANGE BEFORE LEAVING|FOOD CANNOT BE RETURNED|WE VALUE YOUR BUSINESS|ENJOY YOUR MEAL|DRIVE SAFELY|CUSTOMER COPY||COME BACK SOON",
}  # fmt: skip
OTHERS = {
    "de": {
        "total": "SUMME|SUMME|SUMME|GESAMT|GESAMTBETRAG|ZU ZAHLEN|TOTAL|BETRAG|ENDBETRAG|RECHNUNGSBETRAG", "subtotal": "ZWISCHENSUMME|ZW-SUMME|ZWISCHENSUMME", "exclusive": "NETTO|NETTOBETRAG", "inclusive": "SUMME INKL. {tax}|BRUTTO", "rounding": "RUNDUNG", "rounded": "TOTAL GERUNDET", "discount": "RABATT|NACHLASS", "service": "TRINKGELD|BEDIENUNG",
        "cash": "BAR|BAR|GEGEBEN BAR|GEGEBEN", "change": "RUECKGELD|ZURUECK|WECHSELGELD|RUECKGELD BAR", "card": "EC-KARTE|GIROCARD|KARTENZAHLUNG|VISA|MAESTRO", "count": "ANZAHL ARTIKEL|POSTEN|ARTIKEL",
        "date": "DATUM|DATUM|BELEGDATUM", "time": "UHRZEIT|ZEIT", "number": "BELEG-NR|BON-NR|RECHNUNG NR|RECHNUNGS-NR|BON|BELEG", "phone": "TEL|TEL.|TELEFON", "tax_id": "UST-IDNR|ST.-NR|UST-ID", "registration": "HRB|ST.NR", "cashier": "KASSIERER|BEDIENER|ES BEDIENTE SIE|KASSE|VERKAEUFER",
        "item": "ARTIKEL|BEZEICHNUNG", "quantity": "MENGE|ANZ", "price": "PREIS|EINZEL", "amount": "BETRAG|GESAMT|SUMME", "code": "SATZ|KZ", "summary": "STEUER|{tax} AUFSTELLUNG",
        "title": "RECHNUNG|QUITTUNG|KASSENBON|KASSENBELEG|KUNDENBELEG", "thanks": "VIELEN DANK FUER IHREN EINKAUF|AUF WIEDERSEHEN|DANKE FUER IHREN BESUCH|UMTAUSCH NUR MIT BON|BIS BALD",
    },
    "fr": {
        "total": "TOTAL|TOTAL|TOTAL TTC|TOTAL A PAYER|NET A PAYER|MONTANT DU|A PAYER|MONTANT TTC", "subtotal": "SOUS-TOTAL|SOUS TOTAL|S/TOTAL", "exclusive": "TOTAL HT|MONTANT HT|HT", "inclusive": "TOTAL TTC|MONTANT TTC", "rounding": "ARRONDI", "rounded": "TOTAL ARRONDI", "discount": "REMISE|REDUCTION|RABAIS", "service": "SERVICE|POURBOIRE",
        "cash": "ESPECES|ESPECES|RECU|REGLE ESPECES", "change": "RENDU|A RENDRE|MONNAIE|RENDU MONNAIE", "card": "CARTE BANCAIRE|CB|CARTE|CB SANS CONTACT", "count": "NB ARTICLES|ARTICLES|NOMBRE D'ARTICLES",
        "date": "DATE|DATE|LE", "time": "HEURE|A", "number": "TICKET|TICKET NO|FACTURE NO|NO TICKET|FACTURE", "phone": "TEL|TEL.|TELEPHONE", "tax_id": "TVA INTRA|SIRET|NO TVA|SIREN", "registration": "RCS|SIRET", "cashier": "CAISSIER|VENDEUR|SERVEUR|HOTE|CAISSE",
        "item": "ARTICLE|DESIGNATION|LIBELLE", "quantity": "QTE|QTE", "price": "P.U.|PRIX|PU", "amount": "MONTANT|TOTAL|PRIX", "code": "CODE|TAUX", "summary": "DETAIL {tax}|{tax}",
        "title": "TICKET DE CAISSE|FACTURE|TICKET CLIENT|RECU|ADDITION", "thanks": "MERCI DE VOTRE VISITE|A BIENTOT|MERCI ET A BIENTOT|CONSERVEZ VOTRE TICKET|ECHANGE SOUS 15 JOURS",
    },
    "es": {
        "total": "TOTAL|TOTAL|TOTAL|TOTAL A PAGAR|IMPORTE TOTAL|A PAGAR|TOTAL EUR|IMPORTE", "subtotal": "SUBTOTAL|SUB TOTAL|SUMA", "exclusive": "BASE IMPONIBLE|TOTAL SIN {tax}|BASE", "inclusive": "TOTAL CON {tax}|TOTAL {tax} INCLUIDO", "rounding": "REDONDEO", "rounded": "TOTAL REDONDEADO", "discount": "DESCUENTO|DTO|AHORRO", "service": "SERVICIO|PROPINA",
        "cash": "EFECTIVO|EFECTIVO|ENTREGADO|ENTREGA|RECIBIDO", "change": "CAMBIO|CAMBIO|SU CAMBIO|DEVOLUCION", "card": "TARJETA|VISA|TARJETA CREDITO|TARJETA DEBITO", "count": "ARTICULOS|NUM. ARTICULOS|UNIDADES",
        "date": "FECHA|FECHA|FEC", "time": "HORA|HORA", "number": "TICKET|FACTURA|FOLIO|FACTURA SIMPLIFICADA|NUM. TICKET|NOTA|OP", "phone": "TEL|TLF|TELEFONO", "tax_id": "NIF|CIF|RFC|C.I.F.", "registration": "REG. MERC|REG", "cashier": "CAJERO|LE ATENDIO|ATENDIDO POR|CAJA|VENDEDOR|MESERO",
        "item": "ARTICULO|DESCRIPCION|CONCEPTO", "quantity": "CANT|UDS|CANT.", "price": "PRECIO|P.UNIT|PVP", "amount": "IMPORTE|TOTAL|IMP", "code": "TIPO|COD", "summary": "DESGLOSE {tax}|DETALLE {tax}",
        "title": "FACTURA SIMPLIFICADA|TICKET|RECIBO|FACTURA|NOTA DE VENTA", "thanks": "GRACIAS POR SU COMPRA|GRACIAS POR SU VISITA|VUELVA PRONTO|CONSERVE SU TICKET|{tax} INCLUIDO",
    },
    "it": {
        "total": "TOTALE|TOTALE|TOTALE EURO|TOTALE COMPLESSIVO|IMPORTO PAGATO|TOTALE EUR|DA PAGARE|IMPORTO", "subtotal": "SUBTOTALE|SUB TOTALE|SUBTOT", "exclusive": "IMPONIBILE|TOTALE NETTO", "inclusive": "TOTALE IVATO|TOTALE {tax} INCL.", "rounding": "ARROTONDAMENTO", "rounded": "TOTALE ARROTONDATO", "discount": "SCONTO|SCONTI", "service": "COPERTO|SERVIZIO",
        "cash": "CONTANTI|CONTANTE|PAGAMENTO CONTANTE|CONTANTI", "change": "RESTO|RESTO|RESTO EURO", "card": "BANCOMAT|CARTA DI CREDITO|PAGAMENTO ELETTRONICO|CARTA", "count": "N. ARTICOLI|PEZZI|ARTICOLI",
        "date": "DATA|DATA|DEL", "time": "ORA|ORE", "number": "DOC. N.|SCONTRINO N|DOCUMENTO N.|NUMERO|RICEVUTA N|SF.", "phone": "TEL|TEL.|TELEFONO", "tax_id": "P.IVA|P. IVA|C.F.|PARTITA IVA", "registration": "REA|C.F.", "cashier": "CASSIERE|OPERATORE|CASSA|CAMERIERE",
        "item": "DESCRIZIONE|ARTICOLO", "quantity": "QTA|Q.TA", "price": "PREZZO|P.UNIT.", "amount": "IMPORTO|PREZZO|EURO", "code": "ALIQ|REP", "summary": "RIEPILOGO {tax}",
        "title": "DOCUMENTO COMMERCIALE|SCONTRINO FISCALE|RICEVUTA|RICEVUTA FISCALE", "thanks": "GRAZIE E ARRIVEDERCI|GRAZIE PER LA VISITA|ARRIVEDERCI|GRAZIE",
    },
    "nl": {
        "total": "TOTAAL|TOTAAL|TOTAAL|TE BETALEN|TOTAAL EUR|EINDTOTAAL", "subtotal": "SUBTOTAAL|SUB-TOTAAL", "exclusive": "TOTAAL EXCL. {tax}|NETTO", "inclusive": "TOTAAL INCL. {tax}", "rounding": "AFRONDING|AFGEROND", "rounded": "AFGEROND TOTAAL", "discount": "KORTING|UW VOORDEEL", "service": "FOOI|BEDIENING",
        "cash": "CONTANT|CONTANT|ONTVANGEN", "change": "WISSELGELD|TERUG|RETOUR", "card": "PIN|BANKPAS|MAESTRO|PINBETALING", "count": "AANTAL ARTIKELEN|ARTIKELEN",
        "date": "DATUM|DATUM", "time": "TIJD|TIJDSTIP", "number": "BON|BONNUMMER|BON NR|FACTUUR|TRANSACTIE", "phone": "TEL|TEL.", "tax_id": "BTW NR|BTW-NUMMER", "registration": "KVK|KVK NR", "cashier": "KASSIER|MEDEWERKER|BEDIEND DOOR|KASSA",
        "item": "ARTIKEL|OMSCHRIJVING", "quantity": "AANTAL", "price": "PRIJS", "amount": "BEDRAG|TOTAAL", "code": "%|TARIEF", "summary": "{tax} OVERZICHT",
        "title": "KASSABON|BON|FACTUUR|KLANTTICKET", "thanks": "BEDANKT EN TOT ZIENS|DANK VOOR UW BEZOEK|TOT ZIENS|BEWAAR DE BON",
    },
    "pt": {
        "total": "TOTAL|TOTAL|VALOR TOTAL|TOTAL A PAGAR|VALOR A PAGAR|TOTAL R$|TOTAL GERAL", "subtotal": "SUBTOTAL|SUB-TOTAL", "exclusive": "TOTAL LIQUIDO|BASE", "inclusive": "TOTAL C/ {tax}", "rounding": "ARREDONDAMENTO", "rounded": "TOTAL ARREDONDADO", "discount": "DESCONTO|DESCONTOS", "service": "SERVICO|TAXA DE SERVICO",
        "cash": "DINHEIRO|DINHEIRO|NUMERARIO|RECEBIDO", "change": "TROCO|TROCO", "card": "CARTAO DE CREDITO|CARTAO DEBITO|MULTIBANCO|CARTAO", "count": "QTD. TOTAL DE ITENS|ARTIGOS|ITENS",
        "date": "DATA|DATA|EMISSAO", "time": "HORA|HORA", "number": "CUPOM|NOTA|FATURA|FATURA SIMPLIFICADA|EXTRATO NO|COO", "phone": "TEL|FONE|TELEFONE", "tax_id": "CNPJ|NIF|CONTRIBUINTE", "registration": "IE|CRC", "cashier": "OPERADOR|CAIXA|ATENDENTE|VENDEDOR",
        "item": "DESCRICAO|PRODUTO|ITEM", "quantity": "QTD|QTDE", "price": "VL UNIT|PRECO|UNIT", "amount": "VALOR|TOTAL|VL TOTAL", "code": "TAXA|CST", "summary": "RESUMO {tax}",
        "title": "CUPOM FISCAL|NOTA FISCAL|FATURA SIMPLIFICADA|RECIBO", "thanks": "OBRIGADO PELA PREFERENCIA|VOLTE SEMPRE|OBRIGADO|OBRIGADO PELA VISITA",
    },
    "id": {
        "total": "TOTAL|TOTAL|TOTAL BELANJA|TOTAL BAYAR|JUMLAH|GRAND TOTAL|TOTAL TAGIHAN", "subtotal": "SUBTOTAL|SUB TOTAL|HARGA JUAL", "exclusive": "DPP|TOTAL SEBELUM PAJAK", "inclusive": "TOTAL TERMASUK {tax}", "rounding": "PEMBULATAN", "rounded": "TOTAL PEMBULATAN", "discount": "DISKON|POTONGAN|HEMAT", "service": "SERVICE|BIAYA LAYANAN",
        "cash": "TUNAI|TUNAI|BAYAR|CASH", "change": "KEMBALI|KEMBALIAN|KEMBALI", "card": "KARTU DEBIT|DEBIT|KARTU KREDIT|QRIS", "count": "TOTAL ITEM|ITEM|JUMLAH ITEM",
        "date": "TANGGAL|TGL|TGL.", "time": "JAM|WAKTU", "number": "NO. NOTA|NO STRUK|NO. FAKTUR|NO TRANSAKSI|STRUK", "phone": "TELP|TELP.|TEL", "tax_id": "NPWP|NPWP", "registration": "NO. IZIN", "cashier": "KASIR|KASIR|PELAYAN",
        "item": "BARANG|NAMA BARANG", "quantity": "QTY|JML", "price": "HARGA|@", "amount": "JUMLAH|TOTAL|HARGA", "code": "KODE", "summary": "RINCIAN {tax}",
        "title": "STRUK BELANJA|NOTA|FAKTUR|KWITANSI", "thanks": "TERIMA KASIH|TERIMA KASIH ATAS KUNJUNGAN ANDA|SELAMAT BELANJA KEMBALI|SAMPAI JUMPA",
    },
    "sv": {
        "total": "TOTALT|TOTALT|ATT BETALA|SUMMA|TOTALT SEK|SUMMA ATT BETALA", "subtotal": "DELSUMMA|NETTO", "exclusive": "NETTO|EXKL. {tax}", "inclusive": "TOTALT INKL {tax}", "rounding": "AVRUNDNING|ORESAVRUNDNING", "rounded": "AVRUNDAT", "discount": "RABATT", "service": "DRICKS",
        "cash": "KONTANT|MOTTAGET KONTANT|KONTANT", "change": "TILLBAKA|VAXEL", "card": "KORT|BANKKORT|KONTOKORT|MOTTAGET KORT", "count": "ANTAL VAROR|ANTAL ARTIKLAR",
        "date": "DATUM|DATUM", "time": "TID|KL", "number": "KVITTO|KVITTONR|NOTA|KVITTO NR", "phone": "TEL|TEL.", "tax_id": "ORG.NR|ORGNR", "registration": "MOMSREG", "cashier": "KASSOR|KASSA|SALJARE",
        "item": "VARA|ARTIKEL", "quantity": "ANTAL", "price": "PRIS|A-PRIS", "amount": "BELOPP|SUMMA", "code": "MOMS%", "summary": "{tax} SPECIFIKATION",
        "title": "KVITTO|KASSAKVITTO|KVITTO KOPIA", "thanks": "TACK FOR BESOKET|VALKOMMEN ATER|SPARA KVITTOT|OPPET KOP 30 DAGAR",
    },
    "da": {
        "total": "TOTAL|TOTAL|I ALT|AT BETALE|TOTAL DKK|SUM", "subtotal": "SUBTOTAL|MELLEMSUM", "exclusive": "NETTO|EKSKL. {tax}", "inclusive": "TOTAL INKL. {tax}", "rounding": "AFRUNDING|OREAFRUNDING", "rounded": "AFRUNDET", "discount": "RABAT", "service": "DRIKKEPENGE",
        "cash": "KONTANT|KONTANT|MODTAGET", "change": "BYTTEPENGE|RETUR|TILBAGE", "card": "DANKORT|KORT|VISA/DANKORT|BETALINGSKORT", "count": "ANTAL VARER|VARER",
        "date": "DATO|DATO", "time": "TID|KL.", "number": "BON|BON NR|KVITTERING|BILAG", "phone": "TLF|TLF.|TEL", "tax_id": "CVR|CVR-NR|SE NR", "registration": "CVR", "cashier": "EKSPEDIENT|KASSE|BETJENT AF",
        "item": "VARE|BESKRIVELSE", "quantity": "ANTAL", "price": "PRIS", "amount": "BELOB|PRIS", "code": "SATS", "summary": "{tax} OPGORELSE",
        "title": "KVITTERING|BON|FAKTURA", "thanks": "TAK FOR BESOGET|PA GENSYN|TAK FOR HANDLEN|GEM BONEN",
    },
    "pl": {
        "total": "SUMA PLN|SUMA|SUMA PLN|RAZEM|DO ZAPLATY|SUMA: PLN", "subtotal": "PODSUMA|SUMA CZESC.", "exclusive": "NETTO|SPRZEDAZ OPODATK. A", "inclusive": "BRUTTO|RAZEM BRUTTO", "rounding": "ZAOKRAGLENIE", "rounded": "SUMA ZAOKRAGLONA", "discount": "RABAT|OPUST", "service": "OBSLUGA|SERWIS",
        "cash": "GOTOWKA|GOTOWKA PLN|GOTOWKA", "change": "RESZTA|RESZTA PLN|RESZTA GOTOWKA", "card": "KARTA|KARTA PLATNICZA|KARTA KREDYTOWA", "count": "ILOSC POZYCJI|POZYCJI",
        "date": "DATA|DATA", "time": "GODZ|GODZINA", "number": "NR|PARAGON NR|NR WYDR|RACHUNEK NR|FAKTURA", "phone": "TEL|TEL.", "tax_id": "NIP|NIP", "registration": "REGON|BDO", "cashier": "KASJER|KASA|SPRZEDAWCA",
        "item": "TOWAR|NAZWA", "quantity": "ILOSC", "price": "CENA", "amount": "WARTOSC|KWOTA", "code": "STAWKA", "summary": "ROZLICZENIE {tax}",
        "title": "PARAGON FISKALNY|RACHUNEK|FAKTURA|NIEFISKALNY", "thanks": "DZIEKUJEMY|ZAPRASZAMY PONOWNIE|DZIEKUJEMY ZA ZAKUPY",
    },
    "tr": {
        "total": "TOPLAM|TOPLAM|TOPLAM|GENEL TOPLAM|ODENECEK|ODENECEK TUTAR", "subtotal": "ARA TOPLAM|ARATOPLAM", "exclusive": "MATRAH|{tax} HARIC", "inclusive": "{tax} DAHIL TOPLAM", "rounding": "YUVARLAMA", "rounded": "YUVARLANMIS", "discount": "INDIRIM|ISKONTO", "service": "SERVIS|KUVER",
        "cash": "NAKIT|NAKIT", "change": "PARA USTU|PARAUSTU", "card": "KREDI KARTI|BANKA KARTI|K.KARTI", "count": "URUN ADEDI|ADET",
        "date": "TARIH|TARIH", "time": "SAAT|SAAT", "number": "FIS NO|FIS NO|FATURA NO|BELGE NO", "phone": "TEL|TEL.", "tax_id": "VKN|VERGI NO|V.D.", "registration": "TIC. SICIL|MERSIS", "cashier": "KASIYER|KASA|GARSON",
        "item": "URUN|ACIKLAMA", "quantity": "ADET|MIKTAR", "price": "FIYAT|B.FIYAT", "amount": "TUTAR|TOPLAM", "code": "ORAN", "summary": "{tax} DETAY",
        "title": "FIS|BILGI FISI|FATURA|MUSTERI NUSHASI", "thanks": "TESEKKUR EDERIZ|YINE BEKLERIZ|IYI GUNLER",
    },
}  # fmt: skip

IMPORTANT = ("total", "date", "company")  # in training with two wordings each, and free of pen marks
LOW = ("company", "address", "street", "town", "time", "cashier", "item", "last")  # the others are high-tier fields
QUESTIONS = {
    "total": "What is the total amount?|What is the total amount?|What is the total?|How much is the total?|What is the grand total?|How much was paid in total?|Give the total amount.|Read the total.|What is the amount due?|What is the final total?|How much does it cost in total?|What is the total on the receipt?|How much is to be paid?|What is the total price?|Total amount?|Extract the total.|total|Total|total_amount|Field: total|What is the bill total?|How much is the bill?|What was the total paid?|What is the value of the field total?|What is the amount of the receipt?||State the total.|How much did it all cost?|Find the total amount.|total amount due",
    "date": "What is the date on the receipt?|What is the date on the receipt?|What is the date?|What is the date of the receipt?|When was it issued?|Give the date.|Read the date.|On which date was this bought?|What date is printed?|When was the purchase?|Date?|date|Date|Extract the date.|Field: date|invoice_date|What is the invoice date?|When was this receipt printed?|What day was it?|What is the purchase date?|What is the transaction date?|What is the bill date?|When was this paid?||When was this sold?|Find the date.|receipt date",
    "company": "What is the name of the company?|What is the name of the company?|What is the company name?|Which shop is this?|Who is the seller?|What is the name of the store?|Name the company.|Which company issued it?|company|Company|company_name|Extract the company.|Field: company|What is the shop called?|What is the merchant name?|Who issued this receipt?|What is the name of the shop?|vendor|merchant|store_name|Which store is it?|Give the company name.||Who sold this?|Find the company name.|seller name",
    "address": "What is the address of the company?|What is the address of the company?|What is the address?|Where is the shop?|Give the address.|address|Address|Extract the address.|Field: address|What is the address of the store?|Where is the company?|company_address||Find the address.",
    "street": "What is the street?|In which street is the shop?|Give the street and number.|street|What is the first line of the address?||Name the street.",
    "town": "What is the town?|In which town is the shop?|What is the postcode and town?|town|city||Name the town.",
    "subtotal": "What is the subtotal?|How much is the subtotal?|Give the subtotal.|subtotal|sub_total|Extract the subtotal.||Find the subtotal.",
    "exclusive": "What is the total before tax?|How much is it without tax?|What is the net amount?|total_before_tax|What is the total excluding tax?|net_amount||Find the amount before tax.",
    "tax": "How much is the tax?|What is the tax amount?|How much tax was paid?|tax|tax_amount|What is the tax?|Extract the tax.||Find the tax amount.",
    "cash": "How much cash was given?|What is the cash amount?|How much was tendered?|cash|What did the customer pay with?|cash_tendered|How much was handed over?||Find the cash amount.",
    "change": "How much is the change?|What is the change?|How much change was given?|change|change_due|Give the change.||Find the change.",
    "card": "How much was paid by card?|What is the card amount?|card_amount|How much was charged to the card?",
    "discount": "How much is the discount?|What is the discount?|discount|Give the discount.||Find the discount.",
    "rounding": "What is the rounding?|How much is the rounding adjustment?|rounding|What is the rounding amount?",
    "service": "How much is the service charge?|What is the service charge?|service_charge",
    "number": "What is the receipt number?|What is the invoice number?|Give the receipt number.|What is the document number?|receipt_number|invoice_number|Which number has the receipt?|What is the bill number?||Find the receipt number.",
    "phone": "What is the phone number?|What is the telephone number?|Give the phone number.|phone|telephone|What is the number of the phone?||Find the phone number.",
    "tax_id": "What is the tax number?|What is the tax ID?|What is the tax registration number?|tax_id|tax_number||Find the tax ID.",
    "registration": "What is the registration number?|What is the company number?|registration_number|company_number",
    "time": "What is the time?|At what time was it bought?|time|When on that day?|What time is printed?|Give the time.||Find the time.",
    "cashier": "Who is the cashier?|What is the name of the cashier?|cashier|Who served?|Give the cashier.||Who was at the till?",
    "count": "How many items were bought?|What is the item count?|item_count|How many items are there?|What is the total quantity?",
    "price": "How much is the {}?|What is the price of {}?|How much does {} cost?|What does the line {} come to?||What was paid for {}?",
    "item": "What is the first item?|Which item is listed first?|Name the first item.|first_item",
    "last": "What is the last item?|Which item is listed last?|Name the last item.|last_item",
}  # fmt: skip
QUOTED = pool(
    'What is "{}"?|What stands beside "{}"?|Read the value of {}.|What is the value beside {}?|{}|{}:'
    '||Which value belongs to "{}"?'
)
SEVERAL_TOTALS = ("TOTAL", "AMOUNT", "BALANCE", "GOODS TOTAL")  # labels that also stand for other sums


def _question(field: str, text: str) -> Question:
    """A question without its answer."""
    return Question(text, (), "low" if field in LOW else "high", None, field)


@dataclass(frozen=True)
class Till:
    """What all blocks of one receipt share: country, format of amounts, letter case and separators."""

    dice: Dice
    country: Country
    amounts: AmountStyle
    title: bool  # words in title case instead of capitals
    colon: str
    rules: str

    @classmethod
    def draw(cls, dice: Dice) -> "Till":
        """A random till."""
        country = choose(dice)
        colon = dice.choice((": ", ": ", " : ", ":", " ", ".: ", "# "))
        rules = dice.choice(("-", "-", "-", "=", "_", "*", ".", "", "- "))
        return cls(dice, country, AmountStyle.draw(dice, country), dice.chance(0.28), colon, rules)

    def case(self, text: str) -> str:
        """The text in the till's letter case."""
        return text.title() if self.title else text

    def label(self, key: str, tax: str = "") -> str:
        """The printed label of a value in the till's language and case; ``tax`` is the name of the tax in it."""
        language = self.country.language
        if language == "en":
            text = self.dice.pick(pool(ENGLISH[key]), "wording")
        else:
            text = self.dice.choice(OTHERS[language][key].split("|"))
        return self.case(text.format(tax=tax))

    def questions(self, field: str, noun: str = "") -> tuple[Question, ...]:
        """A question about a field, perhaps about the article ``noun``; in training two about an important field."""
        count = 2 if self.dice.training and field in IMPORTANT else 1
        pick = self.dice.pick
        return tuple(_question(field, pick(pool(QUESTIONS[field]), "wording").format(noun)) for _ in range(count))

    def label_questions(self, field: str, printed: str) -> tuple[Question, ...]:
        """``questions``, and in 30 % one more that quotes the printed label, unless several sums may have it."""
        ambiguous = field != "total" and printed.upper().strip(" :.") in SEVERAL_TOTALS
        quoted = self.dice.chance(0.3) and len(printed) > 2 and not ambiguous
        questions = self.questions(field)
        if quoted:
            questions = (*questions, _question(field, self.dice.pick(QUOTED, "wording").format(printed)))
        return questions

    def money(self, amount: float, questions: tuple[Question, ...] = (), marked: bool = False) -> tuple[Span, ...]:
        """The spans of an amount and its currency. Of the currency only a dollar sign is part of the answer."""
        before, behind = self.amounts.around(marked)
        text = self.amounts.write(amount)
        if before == "$":
            before, text = "", f"-${text[1:]}" if text.startswith("-") else f"${text}"
        return tuple(s for s in (span(before), span(text, *questions), span(behind)) if s.text)

    def rule(self) -> Line:
        """A line of the till's rule character."""
        return rule(self.rules)
