"""The frontdesk: the region's HTTP service for endpoints, publishing, history and the pages.

It knows the boxes from their load reports alone, and keeps only those of the last seconds.

The root has the service, which joins the folders below; these import nothing of it.
"""
