"""Rooms: members, audiences of utterances, commands, and outcomes to listeners.

    service (commands of members) ──> command_queue, guesses
        └──> cache (rooms as known here) <── membership (sessions that move), audience (listeners)
    fanout: outcomes to the owners of listeners

The rooms are in the store and span instances. Nothing here knows a socket.
"""
