"""One running instance and the tasks it owns."""
