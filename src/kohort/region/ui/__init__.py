"""The web page of a region: `kohort region ui`; needs the extra `ui`."""
