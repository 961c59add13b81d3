"""The routes of a text between languages, and the protection of its content. All pure.

`routes` finds the routes that the installed translators form, `table` has the measured score of
each, `protected` masks text that must not change, `guards` detects bad translations. The engine
that uses them is `engines/router.py`.
"""
