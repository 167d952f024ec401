"""The hub: subscriptions, recent messages of each topic, identities of all. Pure."""
