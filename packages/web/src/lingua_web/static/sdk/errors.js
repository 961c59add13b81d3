/**
 * An error with a code for programs. The codes of the server are those of docs/protocol.md; the
 * SDK adds: CONNECTION_LOST, BUFFER_FULL, SESSION_OVER, TOKEN_EXPIRED, TOKEN_REVOKED,
 * TAKEN_OVER, MICROPHONE_REFUSED, MICROPHONE_MISSING, MICROPHONE_BUSY, MICROPHONE_FAILED,
 * MICROPHONE_NEEDS_HTTPS.
 */
export class LinguaError extends Error {
  /**
   * @param {string} code
   * @param {string} [message]
   * @param {{retryAfterMs?: number, details?: any}} [more]
   */
  constructor(code, message = code, more = {}) {
    super(message);
    this.name = "LinguaError";
    this.code = code;
    this.retryAfterMs = more.retryAfterMs ?? 0;
    this.details = more.details;
  }
}
