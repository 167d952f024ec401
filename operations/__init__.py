"""Programs of those who run a fabric: the command ``newsfabric``, and a booted machine's own.

They import ``newsfabric``, and no service. No service imports them: only ``localfabric`` does,
whose commands hang in that command. The modules here are values and helpers of the folders below.
"""
