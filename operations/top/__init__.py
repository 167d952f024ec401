"""``newsfabric top``: the operations board in a terminal.

A chain of pure steps. A board's document becomes values (operations.board_document), these become
the lines of a table (:mod:`lines`), bytes from the keyboard become keys (:mod:`keys`). A key
changes the view (:mod:`state`), and all of it becomes the rows of a screen (:mod:`screen`). The
modules with I/O decide nothing: :mod:`frontdesks` reads a frontdesk, and the next one when that is
away, :mod:`terminal` owns the terminal.
"""
