/**
 * The room that a session is in, and its request to create or join one.
 *
 * A request is sent again on every new connection until it is answered, so a lost answer does no
 * harm: a session that is in its room already is told so. Leaving is not answered; it is repeated
 * on the next connection until the server says that the session is not in that room.
 */

import { LinguaError } from "./errors.js";

const RETRY_MS = 500;

export class RoomMembership {
  #send;
  #ownSession;
  // The request that joins the present room again; null outside of rooms.
  #rejoin = null;
  #left = "";
  // Since when the session is in its room, and was in the room it left; 0: not known.
  #joinedAt = 0;
  #leftJoinedAt = 0;
  // The request under way: {message, resolve, reject, isRepeated}.
  #request = null;
  #retryTimer = 0;

  constructor(send, ownSession) {
    this.#send = send;
    this.#ownSession = ownSession;
  }

  /** The code of the room; empty outside of rooms. */
  get code() {
    return this.#rejoin?.room_code ?? "";
  }

  /** Create or join: resolves with the room's code, rejects with `LinguaError`. */
  perform(message) {
    if (this.#request) {
      return Promise.reject(new LinguaError("BUSY", "another room request is under way"));
    }
    return new Promise((resolve, reject) => {
      this.#request = { message, resolve, reject, isRepeated: false };
      this.#send(message);
    });
  }

  /** Remember another language for the case that the room must be joined again. */
  setLanguage(preferredLang) {
    if (this.#rejoin) this.#rejoin.preferred_lang = preferredLang;
  }

  leave() {
    if (!this.#rejoin) return;
    this.#left = this.#rejoin.room_code;
    this.#leftJoinedAt = this.#joinedAt;
    this.#rejoin = null;
    this.#joinedAt = 0;
    this.#send({ type: "room_leave", room_code: this.#left });
  }

  /** Send again on a new connection, before any audio: audio goes to the members of that time. */
  beginConnection(isNewSession) {
    if (isNewSession) this.#left = "";
    else this.#leaveAgain();
    if (this.#request) {
      this.#request.isRepeated = !isNewSession;
      this.#send(this.#request.message);
    } else if (isNewSession && this.#rejoin) this.#send(this.#rejoin);
  }

  /** Look whether a message answers the request, or ends the membership. */
  handle(message) {
    if (message.type === "room_expired") this.#rejoin = null;
    else if (message.type === "room_error") this.#handleError(message);
    else if (message.type === "error") this.#handleOutage(message);
    else if (message.type === "room_create_ack" && this.#wants("room_create")) {
      this.#complete(message.room_code, 0);
    } else if (message.type === "room_members") this.#handleMembers(message);
  }

  end(error) {
    clearTimeout(this.#retryTimer);
    const request = this.#request;
    this.#request = null;
    request?.reject(error);
  }

  #wants(type) {
    return this.#request?.message.type === type;
  }

  #handleMembers(message) {
    const own = this.#ownSession();
    const joinedAt = message.members.find((one) => one.session_id === own)?.joined_at ?? 0;
    if (this.#wants("room_join")) this.#complete(message.room_code, joinedAt);
    else if (message.room_code === this.code) this.#joinedAt = joinedAt || this.#joinedAt;
  }

  #complete(code, joinedAt) {
    const { message, resolve } = this.#request;
    if (message.type === "room_join" && message.room_code !== code) return;
    // The list of the stay before it left.
    const isOldList = this.#leftJoinedAt && joinedAt === this.#leftJoinedAt;
    if (code === this.#left && isOldList) return;
    this.#left = "";
    this.#joinedAt = joinedAt;
    const { display_name, preferred_lang } = message;
    this.#rejoin = { type: "room_join", room_code: code, display_name, preferred_lang };
    this.#request = null;
    resolve(code);
  }

  #handleError(error) {
    if (error.code === "NOT_IN_ROOM") {
      this.#left = ""; // the server had received the leave
      return;
    }
    if (!this.#request) {
      // A rejoin after a lost session was refused: there is no such room any more.
      if (error.code !== "RATE_LIMITED") this.#rejoin = null;
      return;
    }
    if (error.code === "ALREADY_IN_ROOM" && !this.#rejoin) {
      if (error.room_code && error.room_code === this.#left) {
        this.#send({ type: "room_leave", room_code: this.#left });
        this.#repeat();
        return;
      }
      const room = this.#roomOf(error);
      if (this.#request.isRepeated && room) {
        this.#complete(room, 0);
        return;
      }
    }
    const { reject } = this.#request;
    this.#request = null;
    reject(new LinguaError(error.code, error.message ?? error.code));
  }

  /** The room that the first of two equal requests led to; empty if none. */
  #roomOf(error) {
    const { message } = this.#request;
    if (message.type === "room_create") return error.room_code ?? "";
    return (error.room_code ?? message.room_code) === message.room_code ? message.room_code : "";
  }

  #handleOutage(error) {
    const isOutage = error.code === "SCHEDULER_DEPENDENCY_DOWN";
    if (!isOutage || !(this.#request || this.#left) || this.#retryTimer) return;
    this.#retryTimer = setTimeout(() => {
      this.#retryTimer = 0;
      this.#leaveAgain();
      this.#repeat();
    }, error.retry_after_ms || RETRY_MS);
  }

  #repeat() {
    if (!this.#request) return;
    this.#request.isRepeated = true;
    this.#send(this.#request.message);
  }

  /** Send the last leave again, unless the session is about to join the same room. */
  #leaveAgain() {
    const wanted = this.#wants("room_join") ? this.#request.message.room_code : this.code;
    if (this.#left && this.#left !== wanted) {
      this.#send({ type: "room_leave", room_code: this.#left });
    }
  }
}
