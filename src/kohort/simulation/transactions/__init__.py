"""Transactional producers, their coordinator and the partitions they write to, in one random order.

The code is that of the product: the machine of the producer, the machine of the coordinator, and a
partition's state of producers. Requests and answers are lost, come late or twice; the coordinator
and the partitions crash at every step; producers die, and others take their names.
"""
