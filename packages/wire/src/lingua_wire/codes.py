"""Error codes and close codes: what each means and whether reconnecting helps.

Codes of the older protocol keep their names. A code is for programs; `HINTS` has the short sentence
that a person may be shown, `FAILURES` the one for an utterance that ended with the code. Close
codes from 4000 on are defined here, lower ones by the WebSocket protocol.
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
    REQUEST_CONFLICT = "REQUEST_CONFLICT"
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
        """Return a sentence for people."""
        return HINTS.get(self, "Something went wrong; please try again.")

    @property
    def failure(self) -> str:
        """Return a sentence for people about an utterance that ended with this code."""
        return FAILURES.get(self, "This could not be translated.")


HINTS = {
    ErrorCode.NO_AVAILABLE_NODE: "No translation node is free; it will be tried again shortly.",
    ErrorCode.NODE_UNAVAILABLE: "The translation node was lost; another one takes over.",
    ErrorCode.MODEL_NOT_AVAILABLE: "A model is missing on that node; another one takes over.",
    ErrorCode.WS_DISCONNECTED: "The connection was lost; reconnect to continue.",
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
    ErrorCode.REQUEST_CONFLICT: "This request id was used for other audio or languages.",
    ErrorCode.RATE_LIMITED: "Too many requests; wait a moment.",
    ErrorCode.UNAUTHORIZED: "A valid token is needed.",
    ErrorCode.FORBIDDEN: "This token does not allow that.",
}

# Shown when no other node will try.
FAILURES = {
    ErrorCode.JOB_TIMEOUT: "This was not translated: it took too long.",
    ErrorCode.NMT_TIMEOUT: "This was not translated: translating took too long.",
    ErrorCode.TTS_TIMEOUT: "This was not translated: speaking the translation took too long.",
    ErrorCode.NODE_UNAVAILABLE: "This was not translated: its node was lost, and no other had it.",
    ErrorCode.NODE_OVERLOADED: "This was not translated: every node has too much to do.",
    ErrorCode.NO_AVAILABLE_NODE: "This was not translated: no node serves these languages now.",
    ErrorCode.BUSY: "This was not translated: too much waits already.",
    ErrorCode.MODEL_NOT_AVAILABLE: "This was not translated: the nodes lack a model for it.",
    ErrorCode.MODEL_LOAD_FAILED: "This was not translated: a model could not be loaded.",
    ErrorCode.MODEL_VERIFY_FAILED: "This was not translated: a model on the node failed its check.",
    ErrorCode.MODEL_CORRUPTED: "This was not translated: a model on the node is damaged.",
    ErrorCode.UNSUPPORTED_FEATURE: "This was not translated: the node cannot do what was asked.",
    ErrorCode.UNSUPPORTED_LANGUAGE: "This was not translated: the language is not supported.",
    ErrorCode.PROCESSING_ERROR: "This was not translated: the node failed on it.",
    ErrorCode.INTERNAL_ERROR: "This was not translated: the node had an error of its own.",
}

# Errors of a node after which another node may succeed.
RETRYABLE_NODE_ERRORS = frozenset(
    {
        "MODEL_NOT_AVAILABLE",
        "MODEL_LOAD_FAILED",
        "MODEL_VERIFY_FAILED",
        "MODEL_CORRUPTED",
        "NODE_OVERLOADED",
        "NODE_UNAVAILABLE",
        "INTERNAL_ERROR",
        "PROCESSING_ERROR",
        "NMT_TIMEOUT",
        "TTS_TIMEOUT",
        "JOB_TIMEOUT",
    }
)

# Codes of a node that are passed on; any other code is only for its operators.
NODE_ERRORS = RETRYABLE_NODE_ERRORS | {"UNSUPPORTED_FEATURE", "UNSUPPORTED_LANGUAGE"}


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
    TOKEN_EXPIRED = 4402
    FORBIDDEN = 4403
    TOKEN_REVOKED = 4407
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
        """Return whether the same peer should reconnect, and how."""
        return CLOSES[self][1]


CLOSES = {
    CloseCode.NORMAL: ("The session was closed as asked.", "not needed"),
    CloseCode.GOING_AWAY: ("The instance stops or drains.", "yes, at once, elsewhere or here"),
    CloseCode.PROTOCOL_ERROR: ("The WebSocket protocol was violated.", "no, fix the client"),
    CloseCode.POLICY_VIOLATION: ("Far too many empty frames.", "no, fix the client"),
    CloseCode.MESSAGE_TOO_BIG: ("A message exceeded its bound.", "yes, with smaller messages"),
    CloseCode.INTERNAL: ("An error of the server; it is logged.", "yes, after a second"),
    CloseCode.TRY_AGAIN_LATER: ("The store cannot be reached.", "yes, after some seconds"),
    CloseCode.HANDSHAKE_TIMEOUT: ("The first message did not arrive in time.", "yes"),
    CloseCode.UNAUTHORIZED: ("No token, or one that is not valid.", "only with a valid token"),
    CloseCode.TOKEN_EXPIRED: (
        "The token of an open socket has expired.",
        "yes, at once, with a new token; resume",
    ),
    CloseCode.FORBIDDEN: ("The token does not allow this.", "only with another token"),
    CloseCode.TOKEN_REVOKED: (
        "The token of an open socket was revoked.",
        "only with a token that is not revoked",
    ),
    CloseCode.SLOW_READER: ("Too much was left unread.", "yes, when it can read again"),
    CloseCode.REPLACED: ("A newer socket of the same peer took over.", "no"),
    CloseCode.REFUSED: (
        "The registration was refused; an `error` gave the reason.",
        "after a change",
    ),
    CloseCode.TOO_MANY_ERRORS: ("Too many invalid messages in a row.", "no, fix the client"),
    CloseCode.RATE_LIMITED: ("Far more messages than allowed.", "yes, after the announced time"),
}
