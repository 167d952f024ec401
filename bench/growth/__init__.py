"""Growth of costs with the work: readers, topics, message rates, boxes, regions, stored messages.

Not the speed table (``python -m bench``), which has one size: here everything is measured at
several, to find the cost of a thousand more of it and the first limit.
"""
