"""Detect finished batches, and let an application and its sources communicate."""
