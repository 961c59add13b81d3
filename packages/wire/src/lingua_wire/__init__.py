"""The protocol: every message of both sockets, their codes, and their encoding.

    codes    shared ──> from_client, to_client, from_node, to_node ──> codec ──> socket_client
    errors,  parts of   one Struct per message, named after its `type`    JSON or MessagePack
    closes   several

A message is decoded once, at the edge; behind it only these types are used. `tables` describes them
for docs/protocol.md. Also here is what several packages share: languages, labels, glossaries,
captions, recordings and the tokens of connections.
"""

# All packages of this repository are released together, under one version.
__version__ = "0.2.0"
