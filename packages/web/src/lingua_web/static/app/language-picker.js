/** A dialog with a search field and a list: choose one language by mouse, finger or keyboard. */

import { languageName, matches, ownName } from "./languages.js";
import { text } from "./texts.js";

export class LanguagePicker {
  #dialog = document.getElementById("picker");
  #title = document.getElementById("picker-title");
  #search = document.getElementById("picker-search");
  #list = document.getElementById("picker-list");
  #none = document.getElementById("picker-none");
  #codes = [];
  #chosen = "";
  #active = 0;
  #resolve = null;

  constructor() {
    this.#search.addEventListener("input", () => this.#show());
    this.#search.addEventListener("keydown", (event) => this.#key(event));
    this.#list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.#choose(option.dataset.code);
    });
    this.#dialog.addEventListener("close", () => this.#finish(""));
    document.getElementById("picker-close").addEventListener("click", () => this.#dialog.close());
  }

  /** Let a person choose; resolves with a code, or with "" if nothing was chosen. */
  choose(titleKey, codes, chosen) {
    this.#codes = codes;
    this.#chosen = chosen;
    this.#title.textContent = text(titleKey);
    this.#search.value = "";
    this.#show();
    this.#dialog.showModal();
    this.#search.focus();
    return new Promise((resolve) => { this.#resolve = resolve; });
  }

  #show() {
    const typed = this.#search.value;
    const found = this.#codes.filter((code) => matches(code, typed));
    this.#active = Math.max(0, typed ? 0 : found.indexOf(this.#chosen));
    this.#list.replaceChildren(...found.map((code, index) => this.#option(code, index)));
    this.#none.hidden = found.length > 0;
    this.#mark();
  }

  #option(code, index) {
    const option = document.createElement("li");
    option.setAttribute("role", "option");
    option.id = `picker-option-${index}`;
    option.dataset.code = code;
    const name = document.createElement("span");
    name.textContent = languageName(code);
    const own = document.createElement("span");
    own.className = "own-name";
    own.lang = code;
    own.textContent = ownName(code);
    option.append(name, own);
    return option;
  }

  #mark() {
    const options = [...this.#list.children];
    options.forEach((option, index) => {
      option.setAttribute("aria-selected", String(index === this.#active));
      option.classList.toggle("is-chosen", option.dataset.code === this.#chosen);
    });
    const active = options[this.#active];
    if (active) {
      this.#search.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView({ block: "nearest" });
    } else this.#search.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    const last = this.#list.children.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e6, End: 1e6 };
    if (event.key in moves) {
      this.#active = Math.min(last, Math.max(0, this.#active + moves[event.key]));
      this.#mark();
    } else if (event.key === "Enter") {
      const active = this.#list.children[this.#active];
      if (active) this.#choose(active.dataset.code);
    } else return;
    event.preventDefault();
  }

  #choose(code) {
    this.#finish(code);
    this.#dialog.close();
  }

  #finish(code) {
    const resolve = this.#resolve;
    this.#resolve = null;
    resolve?.(code);
  }
}
