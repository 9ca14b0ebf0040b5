"""Transactional producers, their coordinator and the partitions they write to, in one random order.

What runs is what ships: the machine of the producer, the machine of the coordinator, and what a
partition knows of producers. Requests and answers are lost, come late or twice; the coordinator and
the partitions crash at every step; producers die, and others take their names.
"""
