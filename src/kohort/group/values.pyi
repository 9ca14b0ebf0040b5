# The type checker knows the original, and so checks the names and types of what is changed.
from dataclasses import replace as replace
