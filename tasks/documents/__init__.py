"""Generated from the queue, the ledger and the law: PRD.md for people and Ralphy, and Ralphy's own files."""
