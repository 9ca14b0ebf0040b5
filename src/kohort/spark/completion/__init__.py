"""Detects finished batches, and lets an application and its sources communicate."""
