/** The languages of the service: their names in the page's language, and which pairs there are. */

import { pageLanguage } from "./texts.js";

/** A name as people know it, such as `Spanish`; the code if nobody knows one. */
export function languageName(code, fallback = "") {
  if (!code) return "";
  try {
    const name = new Intl.DisplayNames([pageLanguage()], { type: "language" }).of(code);
    if (name && name !== code) return name[0].toLocaleUpperCase(pageLanguage()) + name.slice(1);
  } catch {
    // Not a code that the browser can read.
  }
  return fallback || code;
}

/** Its name in itself, such as `español`. */
export function ownName(code) {
  try {
    return new Intl.DisplayNames([code], { type: "language" }).of(code) ?? "";
  } catch {
    return "";
  }
}

/** Letters that people type without their marks are found too. */
export function plain(given) {
  return given.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

/** Whether a language matches what was typed: by name, own name or code. */
export function matches(code, typed) {
  const wanted = plain(typed.trim());
  const names = [languageName(code), ownName(code), code].map(plain);
  return names.some((name) => name.startsWith(wanted) || name.includes(` ${wanted}`))
    || (wanted.length > 2 && names.some((name) => name.includes(wanted)));
}

const base = (code) => code.toLowerCase().split("-")[0];

/** What the service serves, from `/web/config.json`. Pure. */
export class ServedLanguages {
  #pairs;
  #servesAny;
  #codes;

  constructor({ pairs = [], languages = [], serves_any: servesAny = false } = {}) {
    this.#pairs = pairs.map((pair) => pair.split(">"));
    this.#servesAny = servesAny;
    this.#codes = languages.map((one) => one.code);
  }

  get isEmpty() {
    return this.#codes.length === 0;
  }

  get sources() {
    return this.#sorted(this.#servesAny ? this.#codes : this.#pairs.map(([source]) => source));
  }

  get targets() {
    return this.#sorted(this.#servesAny ? this.#codes : this.#pairs.map(([, target]) => target));
  }

  targetsOf(source) {
    if (this.#servesAny) return this.targets.filter((code) => code !== source);
    const found = this.#pairs.filter(([from]) => from === source || from === base(source));
    return this.#sorted(found.map(([, target]) => target));
  }

  serves(source, target) {
    return this.#servesAny || this.targetsOf(source).includes(target);
  }

  /** The best first guess: what the person speaks, and something to translate it into. */
  guess(wishes, remembered = {}) {
    const spoken = [remembered.source, ...wishes.flatMap((code) => [code.toLowerCase(), base(code)])];
    const source = spoken.find((code) => code && this.sources.includes(code))
      ?? this.sources[0] ?? base(wishes[0] ?? "en");
    const targets = this.targetsOf(source);
    const liked = [remembered.target, ...wishes.map(base), "en", "es"];
    const target = liked.find((code) => code && code !== source && targets.includes(code))
      ?? targets[0] ?? (source === "en" ? "es" : "en");
    return { source, target };
  }

  #sorted(codes) {
    const byName = (one, other) => languageName(one).localeCompare(languageName(other));
    return [...new Set(codes)].filter(Boolean).sort(byName);
  }
}
