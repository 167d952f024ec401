"""The operations board: a picture of all regions, and who may see it."""
