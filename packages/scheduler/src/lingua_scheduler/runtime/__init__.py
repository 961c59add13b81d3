"""One running instance: sessions, nodes and jobs between the sockets and the store.

    session_registry ──> session_factory ──> session      clients open, resume and end
        session: speech_input ──> admission ──> job_submitter ──> (store)
                 (store) ──> outcome_router ──> delivery ──> client_notifier
    node_registry, node_reports ──> effects ──> held_jobs     nodes register, work and report
    peer_instances, peer_messages                              other instances
    instance builds all of it; loops and drain keep and end it

Nothing here knows a socket library: sockets are `Outlet` and `NodeOutlet`.
"""
