"""What was done, kept so that nobody has to be believed: a ledger, and the states that follow from it."""
