"""The inputs of a run: sizes that the model accepts, and values by the purpose of each input, or the user's."""
