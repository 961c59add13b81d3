"""The quality and the speed of the routes between languages.

`sets` has the sentences, `bleu` the score beside chrF, `run` translates and measures, `report` has
the results. `lingua bench translation` is `commands/bench_translation.py`.
"""
