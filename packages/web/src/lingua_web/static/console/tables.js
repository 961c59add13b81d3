// Tables whose rows stay the same elements while their content changes, so that the keyboard's
// place, a screen reader's place and a half pressed button are not lost every second.

import { el } from "./format.js";

export class Table {
  /** `columns`: [heading, cell(item), options]; a cell is text, an element or a list of them. */
  constructor(table, columns, { key = (item) => item.id, empty = "none" } = {}) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = el("tbody");
    this.empty = el("tr", { class: "none" }, el("td", { colspan: columns.length }, empty));
    const heads = columns.map(([heading, , more]) =>
      el("th", { scope: "col", class: more?.number ? "number" : null }, heading));
    table.replaceChildren(el("thead", {}, el("tr", {}, ...heads)), this.body);
  }

  show(items) {
    const seen = new Set();
    let before = null;
    for (const item of items) {
      const key = this.key(item);
      seen.add(key);
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, (row = this.make()));
      this.fill(row, item);
      const place = before ? before.nextSibling : this.body.firstChild;
      if (row.element !== place) this.body.insertBefore(row.element, place);
      before = row.element;
    }
    for (const [key, row] of this.rows) {
      if (seen.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    if (items.length) this.empty.remove();
    else this.body.append(this.empty);
  }

  make() {
    const cells = this.columns.map(([heading, , more]) =>
      el(more?.head ? "th" : "td", {
        scope: more?.head ? "row" : null,
        class: more?.number ? "number" : null,
        "data-label": heading,
      }));
    return { element: el("tr", {}, ...cells), cells, shown: [] };
  }

  fill(row, item) {
    this.columns.forEach(([, cell, more], index) => {
      // A cell that is made of elements says what it depends on; others are their own text.
      const mark = more?.depends ? more.depends(item) : cell(item);
      if (row.shown[index] === mark) return;
      row.shown[index] = mark;
      const made = more?.depends ? cell(item) : mark;
      row.cells[index].replaceChildren(...[made].flat().filter((one) => one !== null));
    });
  }
}

/** A share of something, as a bar with its numbers. */
export function meter(taken, all, label) {
  const share = all ? Math.min(1, taken / all) : 0;
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span", { class: share >= 1 ? "fill full" : "fill" }));
  bar.firstChild.style.width = `${share * 100}%`;
  return el("span", { class: "meter" }, bar, el("span", {}, `${taken} / ${all}${label ?? ""}`));
}

export const badge = (word) => el("span", { class: `badge ${word}` }, word);
