"""Warm starts: the expert's demonstrations, and what it says to the learner's own plays."""
