"""The API for programs: endpoints, publishing, history, and its description."""
