"""Answers to readers' verbs and logins, the same on both engines."""
