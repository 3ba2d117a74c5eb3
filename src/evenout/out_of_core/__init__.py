"""Rows in partitions: files and Dask collections, the engines that work on them, and the rows that memory takes."""
