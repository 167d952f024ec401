"""The way of a message: from the box's queue, or the store, to the readers of every process."""
