"""Which way a text takes from one language to another, and what must not happen to it there.

`routes` knows the ways that installed translators make together, `table` what each was worth when
it was measured, `protected` what comes through every engine as it is, `guards` what a bad
translation looks like. All pure; the engine that uses them is `engines/router.py`.
"""
