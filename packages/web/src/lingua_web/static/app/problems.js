/** Errors as a person understands them: what happened, and what can be done. */

import { languageName } from "./languages.js";
import { text } from "./texts.js";

const TEXTS = {
  MICROPHONE_REFUSED: "micRefused",
  MICROPHONE_MISSING: "micMissing",
  MICROPHONE_BUSY: "micBusy",
  MICROPHONE_FAILED: "micFailed",
  MICROPHONE_NEEDS_HTTPS: "micNeedsHttps",
  UNAUTHORIZED: "unauthorized",
  TOKEN_EXPIRED: "expired",
  TOKEN_REVOKED: "revoked",
  FORBIDDEN: "forbidden",
  TAKEN_OVER: "takenOver",
  ROOM_NOT_FOUND: "noSuchRoom",
  INVALID_ROOM_CODE: "noSuchRoom",
  ROOM_FULL: "roomFull",
  RATE_LIMITED: "tooManyCodes",
  BUSY: "busy",
  BUFFER_FULL: "bufferFull",
  SCHEDULER_DEPENDENCY_DOWN: "storeDown",
  CONNECTION_LOST: "unreachable",
  UNREACHABLE: "unreachable",
  UNSUPPORTED_LANGUAGE: "noNodeAtAll",
};
// News are read once and need nobody to close them.
const NEWS_MS = 4000;
export const TOKEN_CODES = new Set(["UNAUTHORIZED", "TOKEN_EXPIRED", "TOKEN_REVOKED"]);

/** The sentence for a code. */
export function sentence(code, values = {}) {
  return TEXTS[code] ? text(TEXTS[code], values) : text("otherProblem", { code });
}

/** The box at the top of the page in which a problem is told, with what can be done. */
export class Notice {
  #box = document.getElementById("notice");
  #text = document.getElementById("notice-text");
  #choices = document.getElementById("notice-choices");
  #timer = 0;

  /**
   * @param {string} words
   * @param {{label: string, act: () => void}[]} [choices]
   * @param {"problem" | "news"} [kind]
   */
  show(words, choices = [], kind = "problem") {
    clearInterval(this.#timer);
    this.#box.dataset.kind = kind;
    this.#text.textContent = words;
    this.#choices.replaceChildren(...choices.map(({ label, act }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", () => {
        this.hide();
        act();
      });
      return button;
    }));
    this.#box.hidden = false;
    if (kind === "news") this.#timer = setTimeout(() => this.hide(), NEWS_MS);
  }

  /** What is shown; empty if nothing is. */
  get words() {
    return this.#box.hidden ? "" : this.#text.textContent;
  }

  hide() {
    clearInterval(this.#timer);
    this.#box.hidden = true;
    this.#choices.replaceChildren();
  }

  /** Nobody translates this: say what there is. */
  showNoNode(served, source, target, choose) {
    if (served.isEmpty) {
      this.show(text("noNodeAtAll"), [{ label: text("tryAgain"), act: () => choose(source, target) }]);
      return;
    }
    const targets = served.targetsOf(source).slice(0, 8);
    const names = { source: languageName(source), target: languageName(target) };
    const rest = targets.length ? text("availableFrom", names) : text("availableInstead");
    const choices = targets.length
      ? targets.map((code) => ({ label: languageName(code), act: () => choose(source, code) }))
      : served.sources.slice(0, 8).map((code) => (
        { label: languageName(code), act: () => choose(code, served.targetsOf(code)[0]) }
      ));
    this.show(`${text("noNode", names)} ${rest}`, choices);
  }

  /** The service takes nobody now: tell why, count down, then try again. */
  showWait(why, retryInS, again) {
    let left = Math.ceil(retryInS);
    const choices = [{ label: text("tryAgain"), act: again }];
    this.show(text(why, { seconds: left }), choices);
    this.#timer = setInterval(() => {
      left -= 1;
      if (left > 0) this.#text.textContent = text(why, { seconds: left });
      else {
        this.hide();
        again();
      }
    }, 1000);
  }
}
