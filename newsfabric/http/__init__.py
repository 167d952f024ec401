"""HTTP for every service: asking others, and bounds on strangers who ask us."""
