"""How many tokens for each tier? Curves, exact allocation, arms at equal totals, and the policy that serves them."""
