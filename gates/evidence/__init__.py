"""What a gate says and leaves behind: verdicts, records, one table and one page."""
