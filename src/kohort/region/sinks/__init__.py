"""Where the output of a region goes."""
