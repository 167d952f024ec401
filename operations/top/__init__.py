"""``newsfabric top``: the operations board in a terminal.

Pure, one after the other: a board's document becomes values (operations.board_document), these
become the lines of a table (:mod:`lines`), bytes from the keyboard become keys (:mod:`keys`), a key
changes what is looked at (:mod:`state`), and all of it becomes the rows of a screen
(:mod:`screen`). What does I/O decides nothing: :mod:`frontdesks` reads a frontdesk, and another
one when that is gone, :mod:`terminal` owns the terminal.
"""
