"""Load that no machine of ours can make, as simulations over the functions that would carry it."""
