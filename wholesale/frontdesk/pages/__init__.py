"""The pages in ``files``, without a build step, and who serves them."""
