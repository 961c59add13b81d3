/**
 * The words on the page: one row per utterance, its original and its translation, and below them
 * what is being said now. Finished rows are announced to screen readers, changing words are not.
 */

import { text } from "./texts.js";

const ROWS_MAX = 500;

/** What was heard, for saving: finished rows with their times. Pure. */
export class HeardText {
  #rows = [];
  #startedAtMs = 0;

  add({ speaker = "", original = "", translation = "", lang = "", atMs, durationMs = 0 }) {
    this.#startedAtMs ||= atMs - durationMs;
    this.#rows.push({ speaker, original, translation, lang, atMs, durationMs });
  }

  clear() {
    this.#rows = [];
    this.#startedAtMs = 0;
  }

  get isEmpty() {
    return this.#rows.length === 0;
  }

  /** @param {"txt" | "srt" | "vtt"} format */
  as(format) {
    if (format === "txt") return this.#plain();
    const cues = this.#cues().map((cue, index) => (
      `${index + 1}\n${stamp(cue.fromMs, format)} --> ${stamp(cue.toMs, format)}\n${cue.text}\n`
    ));
    return `${format === "vtt" ? "WEBVTT\n\n" : ""}${cues.join("\n")}`;
  }

  #plain() {
    return this.#rows.map((row) => {
      const lines = [row.original, row.translation].filter(Boolean);
      return `${row.speaker ? `${row.speaker}: ` : ""}${lines.join("\n    ")}\n`;
    }).join("\n");
  }

  /** One after another: a cue ends where the next begins. */
  #cues() {
    const cues = this.#rows.map((row) => {
      const toMs = row.atMs - this.#startedAtMs;
      const said = row.translation || row.original;
      const words = row.speaker ? `${row.speaker}: ${said}` : said;
      const readMs = Math.max(1500, row.durationMs || said.length * 60);
      return { fromMs: Math.max(0, toMs - readMs), toMs: Math.max(toMs, 500), text: oneParagraph(words) };
    });
    cues.forEach((cue, index) => {
      const before = cues[index - 1];
      if (before) cue.fromMs = Math.max(cue.fromMs, before.toMs);
      cue.toMs = Math.max(cue.toMs, cue.fromMs + 1000);
    });
    return cues;
  }
}

/** A blank line ends a cue, and an arrow would begin one. */
function oneParagraph(words) {
  return words.replace(/\s*\n\s*/g, " ").replaceAll("-->", "→");
}

function stamp(ms, format) {
  const pad = (value, size = 2) => String(Math.floor(value)).padStart(size, "0");
  const clock = `${pad(ms / 3600000)}:${pad((ms / 60000) % 60)}:${pad((ms / 1000) % 60)}`;
  return `${clock}${format === "srt" ? "," : "."}${pad(ms % 1000, 3)}`;
}

export class Transcript {
  #list = document.getElementById("rows");
  #live = document.getElementById("live");
  #empty = document.getElementById("empty");
  // The utterances that are shown.
  #known = new Set();
  // What is being said now, by speaker: {index, row}.
  #partials = new Map();
  heard = new HeardText();

  /** Show a finished utterance. */
  addFinal({ speakerId, index, speaker, original, translation, lang, sourceLang, note, atMs, durationMs }) {
    this.dropPartial(speakerId, index);
    this.#known.add(`${speakerId}/${index}`);
    const row = newRow("li");
    fill(row, { speaker, original, translation, lang, sourceLang, note });
    const wasAtEnd = isAtEnd();
    this.#list.append(row);
    while (this.#list.children.length > ROWS_MAX) this.#list.firstChild.remove();
    this.#empty.hidden = true;
    if (original || translation) {
      this.heard.add({ speaker, original, translation, lang, atMs, durationMs });
    }
    if (wasAtEnd) scrollToEnd();
  }

  /** Show what was said before one came, in front of everything that came since. */
  addEarlier({ speakerId, index, speaker, translation, lang, atMs }) {
    if (this.#known.has(`${speakerId}/${index}`)) return;
    const row = newRow("li");
    row.classList.add("earlier");
    fill(row, { speaker, translation, lang });
    this.#list.insertBefore(row, this.#list.querySelector("li:not(.earlier)"));
    this.#empty.hidden = true;
    this.heard.add({ speaker, translation, lang, atMs });
    scrollToEnd();
  }

  /** Show words that are still being spoken. */
  showPartial({ speakerId, index, speaker, stable, unstable, translation, lang, sourceLang }) {
    const known = this.#partials.get(speakerId);
    if (known && known.index > index) return;
    const row = known?.row ?? this.#live.appendChild(newRow("div"));
    this.#partials.set(speakerId, { index, row });
    const wasAtEnd = isAtEnd();
    fill(row, { speaker, original: "", lang, sourceLang });
    words(row.querySelector(".original"), stable, unstable);
    if (translation) words(row.querySelector(".translation"), translation.stable, translation.unstable);
    this.#empty.hidden = true;
    if (wasAtEnd) scrollToEnd();
  }

  /** Text of the words that are being spoken; empty if none are. */
  partialText(speakerId) {
    return this.#partials.get(speakerId)?.row.querySelector(".original").textContent ?? "";
  }

  dropPartials() {
    for (const speakerId of [...this.#partials.keys()]) this.dropPartial(speakerId, Infinity);
  }

  clear() {
    this.#list.replaceChildren();
    this.#known.clear();
    this.dropPartials();
    this.heard.clear();
    this.#empty.hidden = false;
  }

  /** Forget the words of an utterance: it is finished, or was none. */
  dropPartial(speakerId, index) {
    const known = this.#partials.get(speakerId);
    if (!known || known.index > index) return;
    known.row.remove();
    this.#partials.delete(speakerId);
  }
}

function newRow(tag) {
  const row = document.createElement(tag);
  row.className = "row";
  for (const name of ["speaker", "original", "translation", "note"]) {
    const part = document.createElement("p");
    part.className = name;
    row.append(part);
  }
  return row;
}

function fill(row, { speaker, original, translation, lang, sourceLang, note }) {
  const parts = { speaker, original, translation, note };
  for (const [name, content] of Object.entries(parts)) {
    row.querySelector(`.${name}`).textContent = content ?? "";
  }
  if (lang) row.querySelector(".translation").lang = lang;
  if (sourceLang) row.querySelector(".original").lang = sourceLang;
}

/** Firm words, and words that may still change. */
function words(element, stable, unstable) {
  const firm = document.createElement("span");
  firm.className = "firm";
  firm.textContent = stable;
  const unsure = document.createElement("span");
  unsure.className = "unsure";
  unsure.title = text("partialNote");
  unsure.textContent = stable && unstable ? ` ${unstable.trimStart()}` : unstable;
  element.replaceChildren(firm, unsure);
}

function isAtEnd() {
  const page = document.scrollingElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 160;
}

function scrollToEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

/** Give the browser a file to save. */
export function saveFile(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
