/** The texts of the pages: one dictionary per language, the browser's own wish first. */

import { kept } from "./memory.js";

export const PAGE_LANGUAGES = { en: "English", es: "Español", fr: "Français", de: "Deutsch" };

let dictionary = {};
let current = "en";

/** The language that the page is shown in. */
export function pageLanguage() {
  return current;
}

/** Load the dictionary of a language, or of the best guess. */
export async function loadTexts(wanted = "") {
  const wishes = [wanted || kept.get("pageLanguage"), ...(navigator.languages ?? [])];
  const known = wishes.map((code) => String(code).toLowerCase().split("-")[0]);
  current = known.find((code) => code in PAGE_LANGUAGES) ?? "en";
  dictionary = (await import(`./texts/${current}.js`)).default;
  document.documentElement.lang = current;
}

/** A text, with `{name}` replaced. */
export function text(key, values = {}) {
  return (dictionary[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** Fill what the page's markup names: `data-text` (content) and `data-label` (accessible name). */
export function fillTexts(root = document) {
  for (const element of root.querySelectorAll("[data-text]")) {
    element.textContent = text(element.dataset.text);
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", text(element.dataset.label));
    if (element.matches("button, a")) element.title = text(element.dataset.label);
  }
  for (const element of root.querySelectorAll("[data-placeholder]")) {
    element.placeholder = text(element.dataset.placeholder);
  }
}
