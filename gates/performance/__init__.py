"""Which of two builds is faster, decided by alternating fresh processes and paired statistics."""
