"""Error codes and close codes: what each means and whether coming back helps.

Codes of the older protocol keep their names. A code is for programs; `HINTS` is the short sentence
a person may be shown. Close codes from 4000 on are ours, below are the WebSocket protocol's.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ErrorCode(StrEnum):
    """The `code` of an `error`, a `room_error` or a `ui_event`."""

    INVALID_MESSAGE = "INVALID_MESSAGE"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    INVALID_SESSION = "INVALID_SESSION"
    SESSION_CLOSED = "SESSION_CLOSED"
    INVALID_PAIRING_CODE = "INVALID_PAIRING_CODE"
    UNSUPPORTED_FEATURE = "UNSUPPORTED_FEATURE"
    UNSUPPORTED_LANGUAGE = "UNSUPPORTED_LANGUAGE"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    RATE_LIMITED = "RATE_LIMITED"
    BUSY = "BUSY"
    NO_AVAILABLE_NODE = "NO_AVAILABLE_NODE"
    NODE_UNAVAILABLE = "NODE_UNAVAILABLE"
    NODE_OVERLOADED = "NODE_OVERLOADED"
    MODEL_NOT_AVAILABLE = "MODEL_NOT_AVAILABLE"
    MODEL_LOAD_FAILED = "MODEL_LOAD_FAILED"
    MODEL_VERIFY_FAILED = "MODEL_VERIFY_FAILED"
    MODEL_CORRUPTED = "MODEL_CORRUPTED"
    PROCESSING_ERROR = "PROCESSING_ERROR"
    NMT_TIMEOUT = "NMT_TIMEOUT"
    TTS_TIMEOUT = "TTS_TIMEOUT"
    JOB_TIMEOUT = "JOB_TIMEOUT"
    WS_DISCONNECTED = "WS_DISCONNECTED"
    SCHEDULER_DEPENDENCY_DOWN = "SCHEDULER_DEPENDENCY_DOWN"
    NO_GPU_AVAILABLE = "NO_GPU_AVAILABLE"
    NODE_ID_CONFLICT = "NODE_ID_CONFLICT"
    NODE_NOT_REGISTERED = "NODE_NOT_REGISTERED"
    INVALID_CAPABILITY_SCHEMA = "INVALID_CAPABILITY_SCHEMA"
    ROOM_NOT_FOUND = "ROOM_NOT_FOUND"
    ALREADY_IN_ROOM = "ALREADY_IN_ROOM"
    NOT_IN_ROOM = "NOT_IN_ROOM"
    ROOM_FULL = "ROOM_FULL"
    INVALID_ROOM_CODE = "INVALID_ROOM_CODE"

    @property
    def hint(self) -> str:
        """Return what a person may be told."""
        return HINTS.get(self, "Something went wrong; please try again.")


HINTS = {
    ErrorCode.NO_AVAILABLE_NODE: "No translation node is free; it will be tried again shortly.",
    ErrorCode.NODE_UNAVAILABLE: "The translation node was lost; another one takes over.",
    ErrorCode.MODEL_NOT_AVAILABLE: "A model is missing on that node; another one takes over.",
    ErrorCode.WS_DISCONNECTED: "The connection was lost; reconnect to go on.",
    ErrorCode.NMT_TIMEOUT: "Translating took too long.",
    ErrorCode.TTS_TIMEOUT: "Speaking the translation took too long.",
    ErrorCode.JOB_TIMEOUT: "The translation took too long.",
    ErrorCode.MODEL_VERIFY_FAILED: "A model on the node failed its check.",
    ErrorCode.MODEL_CORRUPTED: "A model on the node is damaged.",
    ErrorCode.NO_GPU_AVAILABLE: "This service takes only nodes with a GPU.",
    ErrorCode.NODE_ID_CONFLICT: "A node with this id is connected already.",
    ErrorCode.INVALID_CAPABILITY_SCHEMA: "The node speaks another capability schema; update it.",
    ErrorCode.SCHEDULER_DEPENDENCY_DOWN: "The store cannot be reached; it recovers by itself.",
    ErrorCode.BUSY: "Too much speech is under way; wait a moment.",
    ErrorCode.RATE_LIMITED: "Too many requests; wait a moment.",
    ErrorCode.UNAUTHORIZED: "A valid token is needed.",
    ErrorCode.FORBIDDEN: "This token does not allow that.",
}

# Reports of a node after which another node may do better.
RETRYABLE_NODE_ERRORS = frozenset(
    {
        "MODEL_NOT_AVAILABLE", "MODEL_LOAD_FAILED", "MODEL_VERIFY_FAILED", "MODEL_CORRUPTED",
        "NODE_OVERLOADED", "NODE_UNAVAILABLE", "INTERNAL_ERROR", "PROCESSING_ERROR",
        "NMT_TIMEOUT", "TTS_TIMEOUT", "JOB_TIMEOUT",
    }
)  # fmt: skip


class CloseCode(IntEnum):
    """Why the server closes a socket."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    INTERNAL = 1011
    TRY_AGAIN_LATER = 1013
    HANDSHAKE_TIMEOUT = 4400
    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    SLOW_READER = 4408
    REPLACED = 4409
    REFUSED = 4410
    TOO_MANY_ERRORS = 4422
    RATE_LIMITED = 4429

    @property
    def meaning(self) -> str:
        """Return the code in a sentence."""
        return CLOSES[self][0]

    @property
    def reconnecting_helps(self) -> str:
        """Return whether the same peer should come back, and how."""
        return CLOSES[self][1]


CLOSES = {
    CloseCode.NORMAL: ("The session was closed as asked.", "not needed"),
    CloseCode.GOING_AWAY: ("The instance stops or drains.", "yes, at once, elsewhere or here"),
    CloseCode.PROTOCOL_ERROR: ("The WebSocket protocol was violated.", "no, fix the client"),
    CloseCode.POLICY_VIOLATION: ("Far too many empty frames.", "no, fix the client"),
    CloseCode.MESSAGE_TOO_BIG: ("A message exceeded its bound.", "yes, with smaller messages"),
    CloseCode.INTERNAL: ("An error of the server; it is logged.", "yes, after a second"),
    CloseCode.TRY_AGAIN_LATER: ("The store cannot be reached.", "yes, after some seconds"),
    CloseCode.HANDSHAKE_TIMEOUT: ("The first message did not come in time.", "yes"),
    CloseCode.UNAUTHORIZED: ("No token, or one that is not valid.", "only with a valid token"),
    CloseCode.FORBIDDEN: ("The token does not allow this.", "only with another token"),
    CloseCode.SLOW_READER: ("Too much was left unread.", "yes, when it can read again"),
    CloseCode.REPLACED: ("A newer socket of the same peer took over.", "no"),
    CloseCode.REFUSED: ("The registration was refused; an `error` said why.", "after a change"),
    CloseCode.TOO_MANY_ERRORS: ("Too many invalid messages in a row.", "no, fix the client"),
    CloseCode.RATE_LIMITED: ("Far more messages than allowed.", "yes, after the time told"),
}
