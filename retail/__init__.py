"""The agent of a retail box: its topology, its shovels, its load reports, its drain.

``feed``, ``load`` and ``drain`` decide (pure, the time is an argument); ``agent`` and ``ends`` act.
"""
