// Numbers, times and elements as the console writes them. Everything from the service becomes text
// nodes, never markup.

/** Make an element; `null` and `false` children and attributes are left out. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    } else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== false));
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

export const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);

export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** An age in one unit: 3 s, 12 min, 5 h, 2 d. */
export function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${seconds} s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 10 || ms === 0 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}

export function rate(perSecond) {
  if (Number.isInteger(perSecond) || perSecond >= 100) return perSecond.toFixed(0);
  return perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

/** A quantile; the histograms of the service end at five seconds. */
export const quantile = (ms) => (ms >= 5000 ? "over 5 s" : duration(ms));

export const time = (ms) =>
  new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** The first names of a list, and how many more there are. */
export function few(names, most = 6) {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` +${more}` : "");
}

/** What a node or a pool translates, in few words. */
export function languages(known) {
  if (!known) return "?";
  if (known.pairs) return few(known.pairs.map((pair) => pair.replace(">", " › ")));
  const from = known.sources ? few(known.sources, 4) : "any";
  const to = known.targets ? few(known.targets, 4) : "any";
  return `${from} › ${to}`;
}

/** The demand of a queue, in few words: its directions, and whose it is. */
export function demand(text) {
  const [directions, , , , tenant] = text.split("|");
  return directions.replaceAll(">", " › ").replaceAll(",", ", ") + (tenant ? ` for ${tenant}` : "");
}
