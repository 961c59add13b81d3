// Stacked columns over the last hour, drawn as SVG. One column is one or several buckets of time.
// Of a service that has just begun the last ten minutes: an hour would be empty but for its edge.
// A pointer or the arrow keys choose a column; its numbers are told below the title.

import { el, svg, sum, time } from "./format.js";

const MINUTE_MS = 60_000;
const HOUR_MIN = 60, YOUNG_MIN = 10;
const HEIGHT = 150, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 20;
const COLUMN_PX = 5;
// A bucket that has just begun says nothing about a rate.
const COVERS_MIN_MS = 3000;

/** A chart: `series` are [name, label]; `values(rows)` gives the numbers of one column. */
export class Chart {
  constructor(figure, { title, unit, series, values, line, format }) {
    Object.assign(this, { figure, series, values, line, format });
    this.rows = [];
    this.bucketMs = 10_000;
    this.nowMs = 0;
    this.chosen = null;
    this.readout = el("output", { class: "readout muted" });
    this.drawing = svg("svg", { height: HEIGHT, role: "img", tabindex: 0 });
    this.title = title;
    this.legend = el("ul", { class: "legend" });
    this.name(series);
    figure.append(
      el("figcaption", {}, el("h2", {}, title, el("span", { class: "muted unit" }, unit))),
      this.readout, this.drawing, this.legend,
    );
    this.drawing.addEventListener("pointermove", (event) => this.pointAt(event));
    this.drawing.addEventListener("pointerleave", () => this.choose(null));
    this.drawing.addEventListener("blur", () => this.choose(null));
    this.drawing.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(figure);
  }

  /** Name the series, which may change with what happens. */
  name(series) {
    this.series = series;
    const keys = series.map(([, label], index) =>
      el("li", {}, el("span", { class: `key s${index}` }), label));
    if (this.line) keys.push(el("li", {}, el("span", { class: "key dash" }), this.line.label));
    this.legend.replaceChildren(...keys);
  }

  show(rates, nowMs) {
    this.rows = rates.rows;
    this.bucketMs = rates.bucket_ms;
    this.nowMs = nowMs;
    this.draw();
  }

  /** How many minutes are shown. */
  get minutes() {
    const oldestMs = this.rows.length ? this.rows[0].at_ms : this.nowMs;
    return this.nowMs - oldestMs < YOUNG_MIN * MINUTE_MS ? YOUNG_MIN : HOUR_MIN;
  }

  get spanText() {
    return this.minutes === HOUR_MIN ? "last hour" : `last ${this.minutes} minutes`;
  }

  /** Put the buckets into columns of equal time. */
  columns(width) {
    const buckets = this.minutes * MINUTE_MS / this.bucketMs;
    const most = Math.max(20, Math.floor((width - LEFT - RIGHT) / COLUMN_PX));
    const each = Math.ceil(buckets / most);
    const number = Math.ceil(buckets / each);
    const span = each * this.bucketMs;
    const last = Math.floor(this.nowMs / span);
    const found = Array.from({ length: number }, (_, i) => ({ at: (last - number + 1 + i) * span, rows: [] }));
    for (const row of this.rows) {
      const index = Math.floor(row.at_ms / span) - last + number - 1;
      if (index >= 0 && index < number) found[index].rows.push(row);
    }
    for (const column of found) {
      const seconds = sum(column.rows.map((row) => row.covers_ms)) / 1000;
      const isEnough = seconds * 1000 >= COVERS_MIN_MS;
      column.values = isEnough ? this.values(column.rows, seconds) : this.series.map(() => 0);
      column.line = isEnough && this.line ? this.line.value(column.rows) : null;
    }
    return found;
  }

  draw() {
    const width = Math.max(240, this.figure.clientWidth - 24);
    const columns = this.columns(width);
    this.drawn = { width, columns };
    const highest = Math.max(...columns.map((one) => Math.max(sum(one.values), one.line ?? 0)));
    const top = roundUp(highest);
    const inner = HEIGHT - TOP - BOTTOM;
    const step = (width - LEFT - RIGHT) / columns.length;
    const y = (value) => TOP + inner * (1 - value / top);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(top * share);
      parts.push(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "grid" }));
      const label = svg("text", { x: LEFT - 6, y: at + 4, class: "axis end" });
      label.textContent = highest || !share ? this.format(top * share) : "";
      parts.push(label);
    }
    const whole = this.minutes, isNarrow = width < 400 || whole < HOUR_MIN;
    for (const minutes of (isNarrow ? [1, 0.5, 0] : [1, 0.75, 0.5, 0.25, 0]).map((share) => share * whole)) {
      const x = LEFT + (width - LEFT - RIGHT) * (1 - minutes / whole);
      const anchor = minutes === whole ? "start" : minutes ? "middle" : "end";
      const label = svg("text", { x, y: HEIGHT - 5, class: `axis ${anchor}` });
      label.textContent = minutes ? `−${minutes} min` : "now";
      parts.push(label);
    }
    this.series.forEach((_, index) => {
      let path = "";
      columns.forEach((column, i) => {
        const below = sum(column.values.slice(0, index)), value = column.values[index];
        if (!value) return;
        const x = LEFT + i * step, wide = Math.max(1, step - 1);
        const high = Math.max(0.75, y(below) - y(below + value));
        path += `M${x.toFixed(1)} ${(y(below + value)).toFixed(1)}h${wide.toFixed(1)}v${high.toFixed(1)}h${(-wide).toFixed(1)}z`;
      });
      if (path) parts.push(svg("path", { d: path, class: `area s${index}` }));
    });
    if (this.line) parts.push(...this.lineParts(columns, step, y));
    if (!highest) {
      const label = svg("text", { x: LEFT + (width - LEFT - RIGHT) / 2, y: TOP + inner / 2 + 4, class: "axis middle" });
      label.textContent = `nothing in the ${this.spanText}`;
      parts.push(label);
    }
    if (this.chosen !== null) {
      const x = LEFT + (this.chosen + 0.5) * step;
      parts.push(svg("line", { x1: x, x2: x, y1: TOP, y2: TOP + inner, class: "cursor" }));
    }
    this.drawing.setAttribute("width", width);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.replaceChildren(...parts);
    this.tell();
  }

  lineParts(columns, step, y) {
    let path = "", isOn = false;
    columns.forEach((column, i) => {
      if (column.line === null) { isOn = false; return; }
      const x = LEFT + (i + 0.5) * step, at = y(column.line).toFixed(1);
      path += `${isOn ? "L" : "M"}${x.toFixed(1)} ${at}`;
      if (!isOn) path += `h0.01`;
      isOn = true;
    });
    return path ? [svg("path", { d: path, class: "line" })] : [];
  }

  pointAt(event) {
    const { width, columns } = this.drawn;
    const box = this.drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const index = Math.floor(((x - LEFT) / (width - LEFT - RIGHT)) * columns.length);
    this.choose(index >= 0 && index < columns.length ? index : null);
  }

  step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) {
      if (event.key === "Escape") this.choose(null);
      return;
    }
    event.preventDefault();
    const last = this.drawn.columns.length - 1;
    this.choose(Math.min(last, Math.max(0, (this.chosen ?? last) + moves[event.key])));
  }

  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.draw();
  }

  tell() {
    const { columns } = this.drawn;
    const column = this.chosen === null
      ? columns.findLast((one) => sum(one.values) > 0 || one.line !== null)
      : columns[this.chosen];
    let text = `nothing in the ${this.spanText}`;
    if (column) {
      const parts = this.series
        .map(([, label], i) => [label, column.values[i]])
        .filter(([, value]) => value > 0)
        .map(([label, value]) => `${label} ${this.format(value)}`);
      const all = parts.length ? this.format(sum(column.values)) : "nothing";
      const line = column.line === null ? "" : `, ${this.line.label} ${this.line.format(column.line)}`;
      // Without a choice only what one looks for first: the parts are in the drawing.
      const detail = this.chosen !== null && parts.length > 1 ? ` (${parts.join(", ")})` : "";
      text = `${time(column.at)}: ${all}${line}${detail}`;
    }
    this.readout.textContent = text;
    this.drawing.setAttribute("aria-label", `${this.title}, ${this.spanText}. ${text}. Arrow keys choose a time.`);
  }
}

/** The next number above that is easy to read. */
export function roundUp(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((one) => one * unit).find((one) => one >= value * 0.999);
}
