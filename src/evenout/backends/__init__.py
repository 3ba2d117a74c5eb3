"""Other machinery for the heavy steps, which makes the same small arrays: a GPU, or rows in partitions."""
