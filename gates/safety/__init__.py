"""What must not come in: secrets, licences that nobody agreed to, constructs that open the engine."""
