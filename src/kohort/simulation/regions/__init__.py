"""Simulated regions: operators, controllers, a control log, a group and a sink in virtual time."""
