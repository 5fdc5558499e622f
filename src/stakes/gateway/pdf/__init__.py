"""PDFs in requests: found in their parts, and drawn page by page at the size that the budget allows.

``parts`` finds them and puts one image part for each page in their place, ``renderer`` draws pages in ``child``, a
process of its own: PDFium is not thread-safe, and a file that crashes it, or takes all memory, ends that process alone.
"""
