"""What lives while sockets live: sessions, nodes, rooms and jobs of one instance.

    edge ──> session.py ──> board.py ──> node.py ──> edge
             cuts, counts,   submits, pushes,  one node's
             delivers        settles, delivers socket
    hall.py    rooms: who hears whom        instance.py  builds all of it and keeps the time

The truth is in the store; what is here can be lost with the process and costs time, not speech.
"""
