"""The part of OpenAI's speech API that this scheduler offers.

    ../http_api.py ──> pages (routes, recordings) ──> form (uploads), audio, runtime/file_session
                         └──> answers, models, errors         (responses)
    ../realtime_socket.py ──> events, audio, errors           (the WebSocket)
                         form, events ──> language_names      (names of languages)

docs/openai.md describes what works and what deviates. Nothing here uses a node's socket or the
store directly.
"""
