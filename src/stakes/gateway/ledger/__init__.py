"""Where a gateway keeps the account of its hard total: in memory, or in a file that survives a restart and a crash."""
