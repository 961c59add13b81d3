"""The chaos harness: real processes, a nemesis, independent histories and an offline checker.

    run ──► cast (schedulers, nodes, speakers)   store (the server or cluster behind them)
     │        └── proxy (faults on a hop)
     ├────► nemesis (what is done to them)       speaker, worker ──► history (what each saw)
     └────► checker (afterwards, from the files) ──► report

`scenarios` names what can be played. `lingua bench chaos` and tests/chaos are the callers.
"""
