"""Commands that start, show, change and break a world."""
