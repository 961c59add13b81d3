"""Nodes that listen while one speaks: streams, and the partial results that come of them.

A stream is a head start, never the truth. Nothing is accepted by it: the client still has the
audio, and the job of the utterance has all of it again. If the node, the stream or the instance is
lost, only the head start is lost.

    SpeechInput ── chunks ──► SessionStreams ──► StreamHub ──► StreamOutlet ──► node
                                   ▲                │  ▲
        hints to the segmenter ◄───┤                │  └──── partials ──────────── node
                                   └── partials ◄───┘
                                   │
                              PartialRouter ──► the speaker, and listeners here and elsewhere
"""
