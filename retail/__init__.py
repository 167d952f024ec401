"""The agent of a retail box: its topology, its shovels, its load reports, its drain.

``feed``, ``load`` and ``drain`` decide (pure, time passed in); ``agent`` and ``ends`` do.
"""
