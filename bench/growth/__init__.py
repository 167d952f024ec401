"""How costs grow with the work: readers, topics, message rates, boxes, regions, what is stored.

Not the speed table (``python -m bench``), which holds one size: here each thing is measured at
several, to tell what a thousand more of it would cost and what gives first.
"""
