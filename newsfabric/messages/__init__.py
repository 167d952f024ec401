"""Messages as values: of publishers and routers, users' marks, the fabric's own."""
