"""The wire, typed: every message of both sockets, their codes, and how they become bytes.

    codes    shared ──> from_client, to_client, from_node, to_node ──> codec
    errors,  parts of   one Struct per message, named after its `type`    JSON or MessagePack
    closes   several

A message is decoded once, at the edge; behind it only these types travel. Nothing here knows a
socket, a store or a clock. docs/protocol.md takes its field tables from here.
"""
