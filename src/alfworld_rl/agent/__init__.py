"""Between a world and a model: the words they exchange and the tokens of a whole episode."""
