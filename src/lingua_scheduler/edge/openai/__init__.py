"""The surface that clients of OpenAI's speech API know, on this scheduler.

    ../http.py ──> pages (routes, one recording's way) ──> form (what was sent), sound, live/visitor
                     └──> answers, models, trouble         (what is told)
    ../realtime_socket.py ──> events, sound, trouble       (the WebSocket)
                     form, events ──> language_names       (what languages are called)

docs/openai.md says what works and what deviates. Nothing here knows a node's socket or the store.
"""
