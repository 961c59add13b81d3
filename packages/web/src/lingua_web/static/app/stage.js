/** Captions of a room, large: `/room/CODE/stage` for a projector, `/room/CODE/overlay` for OBS. */

import { CaptionFeed } from "../sdk/caption-feed.js";
import { ServedLanguages, languageName } from "./languages.js";
import { sentence } from "./problems.js";
import { spaced } from "./room-panel.js";
import { askConfig, takeToken } from "./service.js";
import { fillTexts, loadTexts, text } from "./texts.js";

const byId = (id) => document.getElementById(id);
const LINES_KEPT = 12;
const OVERLAY_LINES = 2;
// On a stream a line goes away when nobody speaks.
const OVERLAY_SHOWN_MS = 12_000;
const PARTIAL_SHOWN_MS = 6000;

const [, room, mode] = location.pathname.match(/^\/room\/(\d{1,12})\/(stage|overlay)$/) ?? [];
const isOverlay = mode === "overlay";
let abort = new AbortController();

/** The captions of one language. */
class Column {
  #list = document.createElement("ol");
  #now = document.createElement("p");
  #waiting = document.createElement("p");
  #linesMax;
  #partial = { speaker: "", index: -1 };
  #timer = 0;

  constructor(lang, linesMax) {
    this.#linesMax = linesMax;
    this.element = document.createElement("section");
    this.element.className = "column";
    this.element.lang = lang;
    this.element.setAttribute("aria-label", languageName(lang));
    const log = document.createElement("div");
    log.setAttribute("role", "log");
    log.setAttribute("aria-live", "polite");
    log.append(this.#list);
    this.#now.className = "now";
    this.#waiting.className = "waiting";
    this.#waiting.textContent = text("stageWaiting");
    this.element.append(this.#waiting, log, this.#now);
  }

  add({ speaker, name, index, text: words }) {
    if (this.#partial.speaker === speaker && this.#partial.index <= index) this.#forget();
    if (!words) return;
    this.#waiting.remove();
    const line = document.createElement("li");
    line.append(...named(name), words);
    this.#list.append(line);
    while (this.#list.children.length > this.#linesMax) this.#list.firstChild.remove();
    if (isOverlay) setTimeout(() => line.remove(), OVERLAY_SHOWN_MS);
  }

  showPartial({ speaker, name, index, stable = "", unstable = "" }) {
    if (!stable && !unstable) {
      this.#forget();
      return;
    }
    this.#waiting.remove();
    this.#partial = { speaker, index };
    const unsure = document.createElement("span");
    unsure.className = "unsure";
    unsure.textContent = stable && unstable ? ` ${unstable.trimStart()}` : unstable;
    this.#now.replaceChildren(...named(name), stable, unsure);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#forget(), PARTIAL_SHOWN_MS);
  }

  #forget() {
    clearTimeout(this.#timer);
    this.#partial = { speaker: "", index: -1 };
    this.#now.replaceChildren();
  }
}

function named(name) {
  if (!name) return [];
  const element = document.createElement("span");
  element.className = "name";
  element.textContent = name;
  return [element];
}

/** Show these languages, each in a column of its own. */
function showLanguages(languages, token) {
  abort.abort();
  abort = new AbortController();
  const linesMax = Number(new URLSearchParams(location.search).get("lines"))
    || (isOverlay ? OVERLAY_LINES : LINES_KEPT);
  const columns = languages.map((lang) => new Column(lang, linesMax));
  byId("columns").replaceChildren(...columns.map((column) => column.element));
  byId("columns").className = `columns-${columns.length}`;
  const { signal } = abort;
  columns.forEach((column, index) => {
    const feed = new CaptionFeed({ room, lang: languages[index], token });
    signal.addEventListener("abort", () => feed.close());
    feed.addEventListener("caption", ({ detail }) => column.add(detail));
    feed.addEventListener("partial", ({ detail }) => column.showPartial(detail));
    const tell = (words) => {
      if (!signal.aborted) byId("trouble").textContent = words;
    };
    feed.addEventListener("state", ({ detail: { state } }) => {
      tell(state === "reconnecting" ? text("feedReconnecting") : "");
      if (!signal.aborted) document.body.dataset.state = state;
    });
    feed.run().then(
      () => tell(text("roomEnded")),
      (error) => tell(sentence(error.code ?? "UNREACHABLE")),
    );
  });
}

function offer(select, codes, chosen, first) {
  const options = codes.map((code) => new Option(languageName(code), code, false, code === chosen));
  if (first) options.unshift(new Option(first, "", false, !chosen));
  select.replaceChildren(...options);
}

async function main() {
  document.documentElement.classList.toggle("overlay", isOverlay);
  const token = takeToken();
  const [{ config }] = await Promise.all([askConfig(), loadTexts()]);
  fillTexts();
  byId("code").textContent = spaced(room ?? "");
  document.title = `${spaced(room ?? "")} · Lingua`;
  const query = new URLSearchParams(location.search);
  const served = new ServedLanguages(config);
  const known = [...new Set([...served.targets, ...served.sources])];
  const first = query.get("lang") || served.guess(navigator.languages ?? []).target;
  const second = query.get("lang2") ?? "";
  const codes = [...new Set([...known, first, second])].filter(Boolean);
  offer(byId("first"), codes, first);
  offer(byId("second"), codes, second, text("stageNone"));
  const show = () => {
    const chosen = [byId("first").value, byId("second").value].filter(Boolean);
    query.set("lang", chosen[0]);
    if (chosen[1]) query.set("lang2", chosen[1]);
    else query.delete("lang2");
    history.replaceState(null, "", `${location.pathname}?${query}`);
    showLanguages([...new Set(chosen)], token);
  };
  byId("choice").addEventListener("change", show);
  show();
}

main();
