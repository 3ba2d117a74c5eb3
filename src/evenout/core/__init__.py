"""Pure mathematics: arrays in, arrays out. No input or output, no state, no scikit-learn."""
