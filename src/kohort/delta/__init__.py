"""Delta Lake tables as kohort writes them: where they are, their files, columns and commits.

Spark's sink and the sink of regions share it; nothing here knows of groups or of Spark.
"""
