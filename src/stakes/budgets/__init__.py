"""Error curves, exact allocation, the policy file, per-request costs and the online controller of the total."""
