/** Types of lingua-client.js, the browser SDK of Lingua Scheduler. */

export interface SessionOptions {
  /** The service, as `https://host` or `wss://host/ws/session`; default: where the page is from. */
  url?: string | URL;
  /** The language that is spoken, such as `en`, or `auto`. */
  source: string;
  /** The languages to translate into. */
  targets: string[];
  /** Words while they are spoken (default: true). */
  partials?: boolean;
  /** Spoken translations in parts, before the whole is ready (default: false). */
  ttsParts?: boolean;
  /** `false`: no spoken translations are made. */
  speech?: boolean;
  /** A token, or a function that gives a fresh one whenever one is needed. */
  token?: string | (() => string | Promise<string>);
  /** A room to join at once, and one's name there. */
  room?: string;
  name?: string;
  glossary?: { term: string; translations?: Record<string, string> }[];
  /** How much silence ends an utterance. */
  silenceMs?: number;
  /** `credentials` of a session of this person that will not be resumed (a reloaded page). */
  replaces?: { session_id: string; resume_token: string };
  /** How long opening may take before it fails (default: 30,000). */
  openMs?: number;
}

export interface Outcome {
  kind: "translation" | "missing";
  isOwn: boolean;
  /** The speaker's session. */
  speaker: string;
  /** Counts the speaker's utterances. */
  index: number;
  /** Empty: the recognised text itself, for a listener of the speaker's own language. */
  lang: string;
  textAsr: string;
  text: string;
  audio: Uint8Array;
  audioFormat: string;
  /** In how many parts the audio came before. */
  parts: number;
  /** Of a missing one: `silence_detected`, `failed`, `expired`, `cancelled`, `gap_timeout`. */
  reason: string;
  why: string;
  epoch: string;
  seq: number;
  timeline: Record<string, number> | null;
}

export interface Partial {
  isOwn: boolean;
  speaker: string;
  index: number;
  lang: string;
  /** Words that will not change, and words that may. */
  stable: string;
  unstable: string;
  translations: { lang: string; stable: string; unstable: string }[];
}

export interface SpeechPart {
  speaker: string;
  index: number;
  lang: string;
  part: number;
  attempt: number;
  audio: Uint8Array;
  audioFormat: string;
}

export interface Member {
  id: string;
  name: string;
  lang: string;
  isAway: boolean;
  isMe: boolean;
  joinedAt: number;
}

export interface State {
  state: "connecting" | "open" | "reconnecting" | "closed";
  attempt?: number;
  retryInMs?: number;
  reason?: string;
  /** The code of the server's refusal, if there was one. */
  problem?: string;
  /** Of `closed`: why, or null if it was wanted. */
  error?: LinguaError | null;
}

export interface Coverage {
  admitted_ms: number;
  delivered_ms: number;
  silent_ms: number;
  failed_ms: number;
  skipped_ms: number;
}

export interface SessionEvents {
  state: State;
  outcome: Outcome;
  partial: Partial;
  speech: SpeechPart;
  accepted: { index: number; startMs: number; endMs: number };
  passed: { index: number; lang: string };
  members: { room: string; members: Member[] };
  room: { room: string; reason?: string };
  reset: { reason: string; lostMs: number };
  problem: { code: string; message: string; details?: any; retryAfterMs?: number };
}

export type SessionEvent = {
  [Name in keyof SessionEvents]: { type: Name; detail: SessionEvents[Name] };
}[keyof SessionEvents];

/** An `EventTarget` whose events are known by name; each is a `CustomEvent`. */
declare class Emitter<Events> extends EventTarget {
  addEventListener<Name extends keyof Events & string>(
    type: Name,
    listener: (event: CustomEvent<Events[Name]>) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

export class LinguaError extends Error {
  code: string;
  retryAfterMs: number;
  details?: any;
}

export class Session extends Emitter<SessionEvents> implements AsyncIterable<SessionEvent> {
  constructor(options: SessionOptions);
  readonly id: string;
  readonly state: "new" | State["state"];
  readonly room: string;
  readonly duplicates: number;
  readonly credentials: { session_id: string; resume_token: string };
  open(): Promise<Session>;
  sendAudio(samples: Int16Array): void;
  cut(): void;
  microphone(options?: MicrophoneOptions): Promise<Microphone>;
  update(change: { source?: string; targets?: string[]; preferredLang?: string }): void;
  finish(): Promise<Coverage | null>;
  close(): void;
  createRoom(options?: { preferredLang?: string; name?: string }): Promise<string>;
  joinRoom(code: string, options?: { preferredLang?: string; name?: string }): Promise<string>;
  leaveRoom(): Promise<void>;
  [Symbol.asyncIterator](): AsyncIterator<SessionEvent>;
}

export interface MicrophoneOptions {
  deviceId?: string;
  workletUrl?: string | URL;
}

export interface MicrophoneEvents {
  audio: Int16Array;
  level: { level: number; isVoice: boolean };
  ended: null;
}

export class Microphone extends Emitter<MicrophoneEvents> {
  static open(options?: MicrophoneOptions): Promise<Microphone>;
  stop(): Promise<void>;
}

export class Speaker extends Emitter<{ playing: string; idle: null }> {
  /** Say what a session translates; `wants` may choose. */
  follow(session: Session, options?: { wants?: (detail: Outcome | SpeechPart) => boolean }): void;
  /** Call it once in a click or key press. */
  unlock(): Promise<void>;
  readonly output: GainNode | null;
  readonly isPlaying: boolean;
  readonly isHeld: boolean;
  readonly waiting: number;
  volume: number;
  isMuted: boolean;
  say(outcome: Outcome): void;
  sayPart(part: SpeechPart): void;
  skip(): void;
  clear(): void;
  hold(isHeld: boolean): void;
  close(): Promise<void>;
}

export interface Caption {
  id?: string;
  speaker: string;
  name: string;
  index: number;
  text: string;
  lang: string;
  atMs: number;
}

export interface CaptionEvents {
  caption: Caption;
  partial: Omit<Caption, "text" | "atMs"> & { stable: string; unstable: string };
  members: { members: { speaker: string; name: string; lang: string; is_away: boolean }[] };
  end: { reason: string };
  state: { state: State["state"] };
}

export class CaptionFeed extends Emitter<CaptionEvents> {
  constructor(options: { url?: string; room: string; lang: string; token?: string });
  run(): Promise<void>;
  close(): void;
}

export function connect(options: SessionOptions): Promise<Session>;
