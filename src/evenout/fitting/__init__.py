"""From rows to a fitted model, in the order of the data: settings, rows, scores, the fit, the choice, the result."""
