"""The `lingua` command, and the parts that the verbs of all packages share.

main                                    finds the verb and runs it
language_arguments, certificates        options that several verbs have
logs, table, terminal                   output: log lines, tables, a long-running command
command_name, extras                    commands to be typed next, for messages
"""
