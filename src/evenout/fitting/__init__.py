"""From rows to a fitted model, in the order of the data: sources, scores, the fit, the request, the result."""
