/**
 * What one person does on the page: speak, read, listen, alone or in a room.
 *
 * It owns the session, the microphone and the loudspeaker, and reports to `view` what is to be
 * shown. Alone, a session lives while the button is pressed; in a room, while one is in the room.
 */

import { CaptionFeed, LinguaError, Session, Speaker } from "../sdk/lingua-client.js";
import { ofTab } from "./memory.js";
import { TOKEN_CODES } from "./problems.js";

// A page that cannot open a session in this time says so; the person may try again.
const OPEN_MS = 8000;
const SPEAKS_MS = 2500;
// The last captions come at once; this is how long they may take.
const EARLIER_MS = 1500;

const base = (code) => code.toLowerCase().split("-")[0];

export class Conversation {
  #view;
  #token = "";
  #session = null;
  #microphone = null;
  #wakeLock = null;
  #members = new Map();
  #spokeAt = new Map();
  // Own utterances: when they were said, for saved subtitles.
  #spans = new Map();
  speaker = new Speaker();
  // What is spoken, what it becomes outside of rooms, and what is read and heard in a room.
  languages = { source: "", target: "", reads: "" };
  isAloud = false;
  pausesWhileSpeaking = true;
  name = "";

  constructor(view) {
    this.#view = view;
  }

  set token(token) {
    this.#token = token;
  }

  get token() {
    return this.#token;
  }

  get isSpeaking() {
    return this.#microphone !== null;
  }

  get room() {
    return this.#session?.room ?? "";
  }

  // Speaking

  async startSpeaking() {
    this.#view.showState("connecting");
    // In the click itself: later the browser would not allow sound.
    const unlocked = this.speaker.unlock();
    try {
      const session = await this.#openSession();
      this.#microphone = await session.microphone();
      await unlocked;
    } catch (error) {
      await this.#giveUp(error);
      return;
    }
    const microphone = this.#microphone;
    microphone.addEventListener("level", ({ detail }) => this.#handleLevel(detail));
    microphone.addEventListener("ended", () => {
      this.#view.showProblem("MICROPHONE_ENDED");
      this.stopSpeaking();
    });
    this.#keepAwake();
    this.#view.showState(this.#session?.state === "open" ? "listening" : "reconnecting");
  }

  async stopSpeaking() {
    const microphone = this.#microphone;
    const session = this.#session;
    if (!microphone) return;
    this.#microphone = null;
    this.#wakeLock?.release().catch(() => {});
    this.#wakeLock = null;
    await microphone.stop();
    this.speaker.hold(false);
    this.#view.showLevel(0);
    if (!session || session.state === "closed") return;
    if (session.room) {
      session.cut();
      this.#view.showState("stopped");
      return;
    }
    this.#view.showState("finishing");
    await session.finish().catch(() => {});
    if (this.#session === session) this.#forgetSession();
    if (!this.isSpeaking) this.#view.showState("stopped");
  }

  // Rooms

  async createRoom() {
    return this.#enter((session) => session.createRoom(this.#asMember()));
  }

  async joinRoom(code) {
    return this.#enter((session) => session.joinRoom(code, this.#asMember()));
  }

  async leaveRoom() {
    const session = this.#session;
    if (!session) return;
    await this.stopSpeaking();
    await session.leaveRoom().catch(() => {});
    session.close();
    this.#forgetSession();
    this.#view.showRoom("", "left");
  }

  /** Languages were chosen: of the next session, or of the one that is open. */
  changeLanguages({ source, target, reads }) {
    this.languages = { source, target, reads };
    if (this.#session && this.#session.state !== "closed") {
      this.#session.update({ source, targets: [target], preferredLang: reads });
    }
  }

  /** Who gets what one says: "others", "same" (they all read one's own language), "nobody". */
  get audience() {
    const others = [...this.#members.values()].filter((member) => !member.isMe);
    if (!this.room || others.some((member) => base(member.lang) !== base(this.languages.source))) {
      return "others";
    }
    return others.length ? "same" : "nobody";
  }

  nameOf(speakerId) {
    return this.#members.get(speakerId)?.name ?? "";
  }

  speaksNow(speakerId) {
    return Date.now() - (this.#spokeAt.get(speakerId) ?? 0) < SPEAKS_MS;
  }

  #asMember() {
    return { preferredLang: this.languages.reads, name: this.name || undefined };
  }

  async #enter(request) {
    this.#view.showState("connecting");
    const unlocked = this.speaker.unlock();
    try {
      const session = await this.#openSession();
      const code = await request(session);
      await unlocked;
      ofTab.set("room", { code, credentials: session.credentials });
      this.#showEarlier(code);
      this.#view.showState(this.isSpeaking ? "listening" : "listener");
      return code;
    } catch (error) {
      await this.#giveUp(error);
      return "";
    }
  }

  /** Whoever comes late reads what was said last: the room's captions give it, then no more. */
  async #showEarlier(room) {
    const feed = new CaptionFeed({ room, lang: this.languages.reads, token: this.#token });
    feed.addEventListener("caption", ({ detail }) => this.#view.showEarlier(detail));
    const timer = setTimeout(() => feed.close(), EARLIER_MS);
    // Not allowed, or not kept: there is nothing to show, then.
    await feed.run().catch(() => {});
    clearTimeout(timer);
  }

  // The session

  async #openSession() {
    if (this.#session && this.#session.state !== "closed") return this.#session;
    const { source, target } = this.languages;
    const session = new Session({
      source, targets: [target], token: this.#token || undefined, openMs: OPEN_MS,
      ttsParts: true, replaces: this.#replaced(),
    });
    this.#session = session;
    this.#listen(session);
    await session.open();
    return session;
  }

  /** A reloaded page takes its former session's place, so that nobody is there twice. */
  #replaced() {
    const former = ofTab.get("room", null);
    ofTab.set("room", null);
    return former?.credentials?.session_id ? former.credentials : undefined;
  }

  #forgetSession() {
    this.#session = null;
    this.#members.clear();
    this.#spans.clear();
    ofTab.set("room", null);
  }

  async #giveUp(error) {
    const microphone = this.#microphone;
    this.#microphone = null;
    await microphone?.stop();
    if (!this.room) {
      this.#session?.close();
      this.#forgetSession();
    }
    if (!(error instanceof LinguaError)) throw error;
    this.#view.showState(this.room ? "listener" : "idle");
    // Closed by the person while it was opened: nothing to tell.
    if (error.code !== "SESSION_OVER") this.#view.showProblem(error.code, error);
  }

  #listen(session) {
    const on = (type, act) => session.addEventListener(type, ({ detail }) => {
      if (this.#session === session) act(detail);
    });
    on("state", (detail) => this.#handleState(session, detail));
    on("outcome", (detail) => this.#handleOutcome(detail));
    on("partial", (detail) => this.#handlePartial(detail));
    on("speech", (detail) => {
      if (this.isAloud) this.speaker.sayPart(detail);
    });
    on("accepted", ({ index, startMs, endMs }) => this.#spans.set(index, endMs - startMs));
    on("passed", (detail) => this.#view.showPassed(session.id, detail.index));
    on("members", ({ members }) => {
      this.#members = new Map(members.map((one) => [one.id, one]));
      this.#view.showMembers(members);
    });
    on("room", ({ room, reason }) => {
      ofTab.set("room", room ? { code: room, credentials: session.credentials } : null);
      if (!room) this.#roomEnded(session);
      this.#view.showRoom(room, reason);
    });
    on("reset", () => {
      if (session.room) ofTab.set("room", { code: session.room, credentials: session.credentials });
      this.#view.showReset();
    });
    on("problem", ({ code, details, retryAfterMs }) => {
      this.#view.showProblem(code, { details, retryAfterMs, isPassing: true });
    });
  }

  #roomEnded(session) {
    if (this.isSpeaking) return;
    session.close();
    this.#forgetSession();
  }

  #handleState(session, { state, error, attempt, problem }) {
    if (state === "reconnecting") {
      this.#view.showState("reconnecting", { attempt });
    } else if (state === "open") {
      const shown = this.isSpeaking ? "listening" : session.room ? "listener" : "connecting";
      this.#view.showState(shown, { isBack: true });
    } else if (state === "closed" && error) this.#sessionLost(error);
    else if (state === "connecting" && problem) this.#view.showProblem(problem, { isPassing: true });
  }

  async #sessionLost(error) {
    const wasSpeaking = this.isSpeaking;
    const hadRoom = Boolean(ofTab.get("room", null));
    if (!wasSpeaking && !hadRoom) return; // whoever waits for it to open tells
    const microphone = this.#microphone;
    this.#microphone = null;
    await microphone?.stop();
    this.#forgetSession();
    this.#view.showLevel(0);
    this.#view.showState("idle");
    if (hadRoom) this.#view.showRoom("", "lost");
    this.#view.showProblem(error.code, error);
    if (TOKEN_CODES.has(error.code)) this.#token = "";
  }

  #handleOutcome(outcome) {
    if (!outcome.isOwn) this.#spokeAt.set(outcome.speaker, Date.now());
    const durationMs = outcome.isOwn ? this.#spans.get(outcome.index) ?? 0 : 0;
    if (outcome.isOwn) this.#spans.delete(outcome.index);
    this.#view.showOutcome(outcome, durationMs);
    if (this.isAloud) this.speaker.say(outcome);
  }

  #handlePartial(partial) {
    this.#spokeAt.set(partial.speaker, Date.now());
    this.#view.showPartial(partial);
  }

  #handleLevel({ level, isVoice }) {
    this.#view.showLevel(level);
    if (isVoice && this.#session?.room) this.#spokeAt.set(this.#session.id, Date.now());
    this.speaker.hold(this.pausesWhileSpeaking && isVoice);
  }

  async #keepAwake() {
    try {
      this.#wakeLock = await navigator.wakeLock?.request("screen");
    } catch {
      // A phone that saves its battery says no; the page works all the same.
    }
  }
}
