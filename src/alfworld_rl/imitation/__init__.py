"""Learning from an expert: who it is, what it demonstrates, and how its plays become training sequences."""
