"""How an image gets to its budget: geometry counts tokens, resize spends them, deletion drops them."""
