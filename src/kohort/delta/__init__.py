"""Delta Lake tables as written by kohort: locations, files, columns and commits.

Spark's sink and the sink of regions share it; nothing here depends on groups or on Spark.
"""
