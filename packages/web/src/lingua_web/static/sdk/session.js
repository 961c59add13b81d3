/**
 * A session: speech in, outcomes out, over one connection after another.
 *
 * It resumes by itself: nothing that was spoken is lost and nothing is given twice, whichever
 * connection or instance dies (docs/protocol.md, "Resuming"). Its events:
 *
 *   state     {state, attempt, retryInMs, reason}   connecting, open, reconnecting, closed
 *   outcome   {kind, isOwn, speaker, index, lang, textAsr, text, audio, ...}   once each, in order
 *   partial   {isOwn, speaker, index, stable, unstable, translations}   never after its outcome
 *   speech    {speaker, index, lang, part, attempt, audio}   a part of a spoken translation
 *   accepted  {index, startMs, endMs}
 *   passed    {index, lang}    what one said reached the others in the room
 *   members   {room, members}
 *   room      {room, reason}   the room ended (empty code), or was entered
 *   reset     {reason, lostMs} the session could not be resumed: a new one was opened
 *   problem   {code, message, details, retryAfterMs}   the server reports; the session goes on
 */

import { Connection } from "./connection.js";
import { LinguaError } from "./errors.js";
import { EventReader } from "./event-reader.js";
import { memberOf, outcomeOf, partialOf, recognisedOf, speechPartOf } from "./messages.js";
import { OutcomeTracker } from "./outcome-tracker.js";
import { RoomMembership } from "./room-membership.js";
import { SpeechSender } from "./speech-sender.js";

const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 2000;
const ANSWER_MS = 6000;
// How long a first session may take to open.
const OPEN_MS = 30_000;
const RESUME_MS = 120_000;
const ACK_EVERY = 8;
const ACK_MS = 2000;
const TEMPORARY = new Set(["SCHEDULER_DEPENDENCY_DOWN", "BUSY", "RATE_LIMITED", "INTERNAL_ERROR"]);
// Closes after which trying again the same way cannot help.
const PERMANENT = new Map([
  [1002, "PROTOCOL_ERROR"], [1008, "PROTOCOL_ERROR"], [1009, "PROTOCOL_ERROR"],
  [4401, "UNAUTHORIZED"], [4403, "FORBIDDEN"], [4409, "TAKEN_OVER"], [4410, "FORBIDDEN"],
  [4422, "PROTOCOL_ERROR"],
]);
const TOKEN_ENDED = new Map([[4402, "TOKEN_EXPIRED"], [4407, "TOKEN_REVOKED"]]);

export class Session extends EventTarget {
  #options;
  #languages;
  #state = "new";
  #id = "";
  #resumeToken = "";
  #resumeMs = RESUME_MS;
  #connection = null;
  // A connection that works and was asked to be left: read until the next one is open.
  #former = null;
  #failures = 0;
  // Connections whose resume was sent and not answered: the server may still act on it.
  #unanswered = 0;
  #until = 0;
  #retryTimer = 0;
  #answerTimer = 0;
  #ackTimer = 0;
  #lostReason = "";
  #speech = new SpeechSender((message) => this.#trySend(message), () => this.#id);
  #tracker = new OutcomeTracker(1);
  #room = new RoomMembership((message) => this.#trySend(message), () => this.#id);
  #opened = deferred();
  #over = deferred();
  #coverage = null;
  #error = null;
  #readers = new Set();
  #microphone = null;
  #handlers = {
    translation_result: (message) => this.#handleOutcome(message),
    missing_result: (message) => this.#handleOutcome(message),
    outcome_passed: (message) => this.#handlePassed(message),
    partial_result: (message) => this.#handlePartial(message),
    asr_partial: (message) => this.#handlePartial(message, recognisedOf),
    tts_part: (message) => this.#emit("speech", speechPartOf(message)),
    utterance_accepted: (message) => this.#handleAccepted(message),
    audio_ack: (message) => this.#handleAudioAck(message),
    backpressure: (message) => this.#handleBackpressure(message),
    session_reset: (message) => this.#handleReset(message),
    session_close_ack: (message) => this.#handleCloseAck(message),
    go_away: (message) => this.#handleGoAway(message),
    token_expiring: (message) => this.#handleTokenExpiring(message),
    room_members: (message) => this.#handleMembers(message),
    room_expired: (message) => this.#handleRoomExpired(message),
    room_error: (message) => this.#handleRoomError(message),
    error: (message) => this.#handleError(message),
  };

  /** @param {import("./lingua-client.js").SessionOptions} options */
  constructor(options) {
    super();
    this.#options = options;
    this.#languages = { source: options.source, targets: [...(options.targets ?? [])] };
    this.#tracker.expected = Math.max(1, this.#languages.targets.length);
    this.#over.promise.catch(() => {});
    this.#opened.promise.catch(() => {});
  }

  get id() {
    return this.#id;
  }

  get state() {
    return this.#state;
  }

  /** The code of the room; empty outside of rooms. */
  get room() {
    return this.#room.code;
  }

  /** Outcomes that arrived again and were dropped. */
  get duplicates() {
    return this.#tracker.duplicates;
  }

  /** What `replaces` of a later session takes, so that this one leaves its room at once. */
  get credentials() {
    return { session_id: this.#id, resume_token: this.#resumeToken };
  }

  /** Open the session; rejects with `LinguaError` if it is refused. */
  open() {
    if (this.#state === "new") {
      this.#until = Date.now() + (this.#options.openMs ?? OPEN_MS);
      this.#setState("connecting");
      globalThis.addEventListener?.("online", this.#onNetwork);
      globalThis.addEventListener?.("offline", this.#onNetwork);
      this.#attempt();
    }
    return this.#opened.promise;
  }

  /**
   * Send speech: pcm16, mono, 16 kHz, in pieces of any length.
   * @param {Int16Array} samples
   */
  sendAudio(samples) {
    this.#checkOpen();
    const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
    this.#speech.add(bytes, false);
  }

  /** End the utterance here. */
  cut() {
    this.#checkOpen();
    this.#speech.add(new Uint8Array(0), true);
  }

  /** Send a microphone's audio from now on; see `Microphone`. */
  async microphone(options) {
    const { Microphone } = await import("./microphone.js");
    const microphone = await Microphone.open(options);
    microphone.addEventListener("audio", ({ detail }) => {
      if (this.#error === null && this.#state !== "closed") this.#sendOrReport(detail);
    });
    this.#microphone = microphone;
    return microphone;
  }

  /** Change languages from the next utterance on. */
  update({ source, targets, preferredLang }) {
    this.#checkOpen();
    if (source) this.#languages.source = source;
    if (targets) {
      this.#languages.targets = [...targets];
      this.#tracker.expected = Math.max(1, targets.length);
    }
    if (preferredLang) this.#room.setLanguage(preferredLang);
    this.#trySend({
      type: "session_update", session_id: this.#id, src_lang: source, tgt_langs: targets,
      preferred_lang: preferredLang,
    });
  }

  /** Wait until everything is answered and end; resolves with the coverage, if it is known. */
  async finish() {
    await this.#microphone?.stop();
    if (this.#state !== "closed") this.#speech.close();
    return this.#over.promise;
  }

  /** End now, without waiting for answers. */
  close() {
    this.#microphone?.stop();
    this.#trySend({ type: "session_close", session_id: this.#id, reason: "left" });
    this.#end(null);
  }

  /** Create a room and join it; resolves with its code. */
  async createRoom({ preferredLang, name } = {}) {
    return this.#changeRoom({ type: "room_create" }, preferredLang, name);
  }

  /** Join a room by its code. */
  async joinRoom(code, { preferredLang, name } = {}) {
    return this.#changeRoom({ type: "room_join", room_code: code }, preferredLang, name);
  }

  async leaveRoom() {
    this.#checkOpen();
    await this.#speech.untilAccepted();
    this.#room.leave();
  }

  async #changeRoom(message, preferredLang, name) {
    this.#checkOpen();
    // Audio that had to be sent again after a loss would go to the members of the new room.
    await this.#speech.untilAccepted();
    const code = await this.#room.perform({
      ...message,
      preferred_lang: preferredLang ?? this.#languages.targets[0],
      display_name: name ?? this.#options.name,
    });
    this.#emit("room", { room: code });
    return code;
  }

  /** All events as `{type, detail}`, from now on until the session ends. */
  [Symbol.asyncIterator]() {
    const reader = new EventReader(() => this.#readers.delete(reader));
    if (this.#state === "closed") reader.end();
    else this.#readers.add(reader);
    return reader;
  }

  // One connection after another

  async #attempt() {
    this.#retryTimer = 0;
    let token;
    try {
      token = await resolved(this.#options.token);
    } catch (error) {
      this.#retry(`no token now: ${error.message}`);
      return;
    }
    if (this.#state === "closed") return;
    const connection = new Connection(socketUrl(this.#options.url), {
      onOpen: () => this.#greet(connection, token),
      onMessage: (message) => this.#receive(connection, message),
      onEnd: (code, reason) => this.#lose(connection, code, reason),
    });
    connection.token = token;
    connection.isGreeted = false;
    this.#connection = connection;
  }

  #greet(connection, token) {
    connection.send(this.#id ? this.#resumeMessage(token) : this.#initMessage(token));
    connection.isAsked = true;
    clearTimeout(this.#answerTimer);
    this.#answerTimer = setTimeout(() => connection.drop("no answer in time"), ANSWER_MS);
  }

  #initMessage(token) {
    const { source, targets } = this.#languages;
    const { partials, ttsParts, glossary, silenceMs, replaces, speech } = this.#options;
    return {
      type: "session_init", client_version: "lingua-client.js", platform: "web",
      src_lang: source, tgt_langs: targets, audio_format: "pcm16", sample_rate: 16000,
      partials: partials ?? true, tts_parts: ttsParts ?? false, glossary, silence_ms: silenceMs,
      pipeline: speech === false ? { use_asr: true, use_nmt: true, use_tts: false } : undefined,
      token, replaces,
    };
  }

  #resumeMessage(token) {
    return {
      type: "session_resume", session_id: this.#id, resume_token: this.#resumeToken,
      epoch: this.#tracker.epoch, last_seq: this.#tracker.seq,
      next_audio_seq: this.#speech.replay.firstSeq, audio_ms: this.#speech.replay.audioMs, token,
    };
  }

  #receive(connection, message) {
    if (connection.isGreeted) {
      if (connection === this.#connection || connection === this.#former) this.#handle(message);
      return;
    }
    switch (message.type) {
      case "session_init_ack": return this.#beginSession(connection, message);
      case "session_resumed": return this.#resumeSession(connection, message);
      case "resume_rejected":
        this.#forgetSession(message.reason);
        return this.#greet(connection, connection.token);
      case "error": return this.#handleRefusal(connection, message);
      default: return undefined;
    }
  }

  #beginSession(connection, ack) {
    const formerId = this.#lostReason ? "lost" : "";
    const lostMs = this.#tracker.openMs;
    this.#id = ack.session_id;
    this.#resumeToken = ack.resume_token ?? "";
    this.#resumeMs = ack.resume_ms ?? RESUME_MS;
    this.#tracker.beginSession(ack.epoch ?? "");
    this.#speech.beginSession();
    if (formerId) this.#emit("reset", { reason: this.#lostReason, lostMs });
    this.#lostReason = "";
    this.#use(connection, true);
    if (ack.unserved_langs?.length) {
      this.#emit("problem", {
        code: "UNSERVED_LANGUAGES", message: "no node serves a language now",
        details: { languages: ack.unserved_langs },
      });
    }
    this.#opened.resolve(this);
  }

  #resumeSession(connection, message) {
    if (message.reset || message.epoch !== this.#tracker.epoch) {
      this.#tracker.resetPositions(message.epoch);
      this.#tracker.forgetFrom(this.#id, message.next_utterance_index);
    }
    this.#tracker.unacknowledged = 0;
    this.#speech.resumeSession(message.next_audio_seq, message.audio_ms);
    this.#use(connection, false);
  }

  #use(connection, isNewSession) {
    clearTimeout(this.#answerTimer);
    connection.isGreeted = true;
    connection.watch(() => (
      { type: "client_heartbeat", session_id: this.#id, timestamp: Date.now() }
    ));
    this.#connection = connection;
    const former = this.#former;
    this.#former = null;
    former?.drop("left");
    this.#failures = 0;
    this.#speech.beginConnection();
    this.#room.beginConnection(isNewSession);
    this.#setState("open");
    this.#speech.pump();
  }

  #forgetSession(reason) {
    this.#lostReason = reason;
    this.#id = "";
    this.#resumeToken = "";
    this.#until = Date.now() + (this.#options.openMs ?? OPEN_MS);
  }

  #handleRefusal(connection, error) {
    clearTimeout(this.#answerTimer);
    if (TEMPORARY.has(error.code)) {
      connection.retryAfterMs = error.retry_after_ms ?? 0;
      connection.problem = error;
      connection.drop(error.code);
      return;
    }
    this.#fail(error.code, error.message, error);
  }

  /** A connection is gone: is it worth another attempt? */
  #lose(connection, code, reason) {
    if (connection === this.#former) this.#former = null;
    if (connection !== this.#connection || this.#state === "closed") return;
    clearTimeout(this.#answerTimer);
    if (connection.isAsked && !connection.isGreeted) this.#unanswered += 1;
    const isOurs = code === 4409 && this.#unanswered > 0;
    if (isOurs) this.#unanswered -= 1;
    const hasTokens = typeof this.#options.token === "function";
    if (TOKEN_ENDED.has(code) && !hasTokens) {
      this.#fail(TOKEN_ENDED.get(code), reason);
    } else if (PERMANENT.has(code) && !isOurs && (code !== 4409 || connection.isGreeted)) {
      this.#fail(PERMANENT.get(code), reason);
    } else {
      if (connection.isGreeted) this.#startWindow();
      this.#retry(reason || `close ${code}`, connection.retryAfterMs, connection.problem);
    }
  }

  #startWindow() {
    this.#until = Date.now() + this.#resumeMs;
    if (!this.#resumeToken) this.#forgetSession("not_resumable");
  }

  #retry(reason, waitMs = 0, problem = undefined) {
    const longest = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(this.#failures, 10));
    const ownMs = this.#failures ? longest * (0.5 + Math.random() / 2) : 0;
    const retryInMs = Math.max(ownMs, waitMs);
    this.#failures += 1;
    if (Date.now() + retryInMs > this.#until) {
      if (!this.#id) {
        this.#fail(problem?.code ?? "CONNECTION_LOST", reason, problem);
        return;
      }
      this.#forgetSession("expired");
    }
    const state = this.#state === "connecting" ? "connecting" : "reconnecting";
    this.#setState(state, { attempt: this.#failures, retryInMs, reason, problem: problem?.code });
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.#attempt(), retryInMs);
  }

  #onNetwork = () => {
    if (this.#retryTimer && globalThis.navigator?.onLine !== false) {
      clearTimeout(this.#retryTimer);
      this.#attempt();
    } else this.#connection?.hurry();
  };

  // Received messages

  #handle(message) {
    const handler = this.#handlers[message.type];
    if (handler) handler(message);
    else this.#room.handle(message);
  }

  #handleOutcome(message) {
    if (!this.#tracker.record(message)) return;
    const isOwn = message.session_id === this.#id;
    const index = message.utterance_index;
    if (isOwn && this.#tracker.recordAnswer(index)) this.#speech.replay.markAnswered(index);
    this.#emit("outcome", outcomeOf(message, isOwn));
    this.#acknowledge();
  }

  #handlePassed(message) {
    if (this.#tracker.recordPassed(message)) {
      this.#emit("passed", { index: message.utterance_index, lang: message.tgt_lang });
      this.#acknowledge();
    }
  }

  #handlePartial(message, read = partialOf) {
    if (!this.#tracker.isAhead(message.session_id, message.utterance_index)) return;
    this.#emit("partial", read(message, message.session_id === this.#id));
  }

  #handleAccepted(message) {
    const { utterance_index: index, start_ms: startMs = 0, end_ms: endMs = 0 } = message;
    // In a room the other members receive the outcomes.
    const isAnswered = this.room ? true : this.#tracker.recordAccepted(index, endMs - startMs);
    if (message.last_seq !== undefined) {
      this.#speech.accept(message.last_seq, endMs, index, isAnswered);
    }
    this.#emit("accepted", { index, startMs, endMs });
  }

  #handleAudioAck(message) {
    this.#speech.accept(message.seq ?? 0, message.audio_ms ?? 0, null, true);
  }

  #handleBackpressure(message) {
    if (message.action !== "SLOW_DOWN") this.#speech.setPaused(message.action === "PAUSE");
    if (message.action === "PAUSE") this.#emit("problem", { code: "BUSY", message: "slow down" });
  }

  #handleReset(message) {
    this.#tracker.resetPositions(message.epoch);
  }

  #handleCloseAck(message) {
    this.#coverage = message.coverage ?? null;
    this.#end(null);
  }

  /** Another instance takes over: connect there at once, and read this one until then. */
  #handleGoAway(message) {
    this.#former = this.#connection;
    this.#failures = 0;
    this.#startWindow();
    clearTimeout(this.#retryTimer);
    const waitMs = message.reconnect_after_ms ?? 0;
    this.#setState("reconnecting", { attempt: 0, retryInMs: waitMs, reason: "go_away" });
    this.#retryTimer = setTimeout(() => this.#attempt(), waitMs);
  }

  async #handleTokenExpiring() {
    if (typeof this.#options.token !== "function") {
      this.#emit("problem", { code: "TOKEN_EXPIRES_SOON", message: "the token expires soon" });
      return;
    }
    try {
      this.#trySend({ type: "token_refresh", token: await resolved(this.#options.token) });
    } catch (error) {
      this.#emit("problem", { code: "TOKEN_EXPIRES_SOON", message: error.message });
    }
  }

  #handleMembers(message) {
    this.#room.handle(message);
    this.#emit("members", {
      room: message.room_code,
      members: message.members.map((one) => memberOf(one, this.#id)),
    });
  }

  #handleRoomExpired(message) {
    this.#room.handle(message);
    this.#emit("room", { room: "", reason: "expired" });
  }

  #handleRoomError(message) {
    const before = this.room;
    this.#room.handle(message);
    if (before && !this.room) this.#emit("room", { room: "", reason: message.code });
  }

  #handleError(message) {
    this.#room.handle(message);
    this.#emit("problem", {
      code: message.code, message: message.message, details: message.details,
      retryAfterMs: message.retry_after_ms ?? 0,
    });
  }

  // Small parts

  #acknowledge() {
    if (this.#tracker.unacknowledged >= ACK_EVERY) this.#sendAck();
    else this.#ackTimer ||= setTimeout(() => this.#sendAck(), ACK_MS);
  }

  #sendAck() {
    clearTimeout(this.#ackTimer);
    this.#ackTimer = 0;
    const { epoch, seq, unacknowledged } = this.#tracker;
    if (!unacknowledged || !this.#resumeToken) return;
    this.#trySend({ type: "outcome_ack", session_id: this.#id, epoch, seq });
    this.#tracker.unacknowledged = 0;
  }

  /** Send if there is a connection to send on; `null` only asks whether there is. */
  #trySend(message) {
    const connection = this.#connection;
    const isReady = connection?.isGreeted && connection.isOpen && connection !== this.#former;
    if (isReady && message) connection.send(message);
    return Boolean(isReady);
  }

  #sendOrReport(samples) {
    try {
      this.sendAudio(samples);
    } catch (error) {
      if (!(error instanceof LinguaError)) throw error;
      this.#emit("problem", { code: error.code, message: error.message });
    }
  }

  #checkOpen() {
    if (this.#state === "closed" || this.#state === "new") {
      throw this.#error ?? new LinguaError("SESSION_OVER", "the session is not open");
    }
  }

  #fail(code, message, error = {}) {
    const more = { retryAfterMs: error.retry_after_ms, details: error.details };
    this.#end(new LinguaError(code, message || code, more));
  }

  #end(error) {
    if (this.#state === "closed") return;
    this.#error = error;
    for (const timer of [this.#retryTimer, this.#answerTimer, this.#ackTimer]) clearTimeout(timer);
    globalThis.removeEventListener?.("online", this.#onNetwork);
    globalThis.removeEventListener?.("offline", this.#onNetwork);
    this.#setState("closed", { error });
    const reason = error ?? new LinguaError("SESSION_OVER", "the session was closed");
    this.#speech.end(reason);
    this.#room.end(reason);
    this.#connection?.drop("over");
    this.#former?.drop("over");
    if (error) {
      this.#opened.reject(error);
      this.#over.reject(error);
    } else {
      this.#opened.reject(reason);
      this.#over.resolve(this.#coverage);
    }
    for (const reader of this.#readers) reader.end();
  }

  #setState(state, more = {}) {
    if (this.#state === "closed") return;
    this.#state = state;
    this.#emit("state", { state, ...more });
  }

  #emit(type, detail) {
    for (const reader of this.#readers) reader.push({ type, detail });
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

function resolved(token) {
  return Promise.resolve(typeof token === "function" ? token() : token);
}

/** `http(s)` addresses are those of the service; `ws(s)` ones are taken as they are. */
export function socketUrl(url) {
  const base = globalThis.location?.href;
  const made = new URL(url ?? "/", base);
  if (made.protocol === "ws:" || made.protocol === "wss:") return made.href;
  return new URL("/ws/session", made).href.replace(/^http/, "ws");
}
