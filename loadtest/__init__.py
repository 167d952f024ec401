"""Load tests of a real fabric, and simulations of loads that no machine of ours can make."""
