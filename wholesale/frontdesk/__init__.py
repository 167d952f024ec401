"""The frontdesk: the region's HTTP face. Where to connect, publish, read back, and the pages.

It knows the boxes from their load reports alone and keeps nothing but those of the last seconds.
"""
