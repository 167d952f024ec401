"""newsfabric: the parts that every service of the fabric shares."""
