"""Options instead of budgets: ask again where an answer is unsure, and hand over to a person where it still is."""
