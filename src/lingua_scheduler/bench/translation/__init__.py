"""How good the ways from one language to another are, and how long they take.

`sets` are the sentences, `bleu` the score beside chrF, `run` translates and measures, `report` is
what came of it. `lingua bench translation` is `cli/bench_translation.py`.
"""
