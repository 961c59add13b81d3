"""The chaos harness: real processes, injected faults, independent histories, an offline checker.

    run ──► deployment (schedulers, nodes, clients)   store (the server or cluster behind them)
     │        └── proxy (faults on a link)
     ├────► nemesis (the faults)      speaking_clients, participants, recording_node ──► history
     └────► checker (afterwards, from the files) ──► report

`scenarios` has everything that can be played. `lingua bench chaos` plays them; `speech/chaos.py` is
a scenario with real engines.
"""
