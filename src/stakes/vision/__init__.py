"""From an image to its budget; knows nothing of questions.

``geometry`` counts the visual tokens of each model family, ``image`` decodes and resizes, ``selectors`` choose the
tokens to keep, and ``deletion`` removes the others exactly.
"""
