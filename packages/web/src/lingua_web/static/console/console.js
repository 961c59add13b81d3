// The operators' page: draws the state of the stream, and asks the API for what a person wants to
// know or to do. docs/operations.md, "The console".

import { Chart } from "./charts.js";
import { age, count, demand, duration, el, few, languages, quantile, rate, sum } from "./format.js";
import { story } from "./story.js";
import { ask, follow, hasToken, setToken } from "./stream.js";
import { badge, meter, Table } from "./tables.js";

const at = (id) => document.getElementById(id);
const SURE_MS = 4000;
const REASONS_SHOWN = 5;
const WORKING = new Set(["ready", "full", "busy"]);
const LOST = ["failed", "expired", "missing"];
const PARTS = [
  ["wait", "wait for a node"], ["asr", "recognising"], ["nmt", "translating"], ["tts", "speaking"],
  ["order", "wait for order"], ["deliver", "delivery"], ["other", "other"],
];

let state = null;

// Charts

const weight = (row) => sum(Object.values(row.outcomes ?? {}));

/** The mean over rows, each counted by its utterances. */
function mean(rows, value) {
  const known = rows.filter((row) => value(row) !== undefined && value(row) !== null);
  const total = sum(known.map((row) => weight(row) || 1));
  return total ? sum(known.map((row) => value(row) * (weight(row) || 1))) / total : 0;
}

const charts = [
  new Chart(at("chart-time"), {
    title: "Where the time goes", unit: "mean per utterance", series: PARTS, format: duration,
    values: (rows) => {
      const parts = PARTS.slice(0, -1).map(([name]) => mean(rows, (row) => (row.mean_ms === undefined ? undefined : row.parts_ms?.[name] ?? 0)));
      return [...parts, Math.max(0, mean(rows, (row) => row.mean_ms) - sum(parts))];
    },
    line: {
      label: "95 %",
      format: quantile,
      value: (rows) => {
        const known = rows.map((row) => row.p95_ms).filter((ms) => ms !== undefined && ms !== null);
        return known.length ? Math.max(...known) : null;
      },
    },
  }),
  new Chart(at("chart-rate"), {
    title: "Utterances", unit: "per second",
    series: [["done", "with a result"], ["silent", "nothing said"], ["lost", "without a result"], ["cancelled", "cancelled"]],
    format: rate,
    values: (rows, seconds) => {
      const all = (names) => sum(rows.map((row) => sum(names.map((name) => row.outcomes?.[name] ?? 0)))) / seconds;
      return [all(["completed"]), all(["completed_no_text"]), all(LOST), all(["cancelled"])];
    },
  }),
  new Chart(at("chart-refused"), {
    title: "Refusals", unit: "per minute, by reason", series: [], format: rate,
    values(rows, seconds) {
      return this.series.map(([name]) => (sum(rows.map((row) => refusedIn(row, name))) / seconds) * 60);
    },
  }),
];

function refusedIn(row, name) {
  const refused = row.refused ?? {};
  if (name !== "*") return refused[name] ?? 0;
  const named = new Set(charts[2].series.map(([one]) => one));
  return sum(Object.entries(refused).filter(([one]) => !named.has(one)).map(([, number]) => number));
}

function nameRefusals(rows) {
  const totals = new Map();
  for (const row of rows) for (const [name, number] of Object.entries(row.refused ?? {})) totals.set(name, (totals.get(name) ?? 0) + number);
  const ranked = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
  const series = ranked.slice(0, REASONS_SHOWN).map((name) => [name, name]);
  if (ranked.length > REASONS_SHOWN) series.push(["*", "other"]);
  if (JSON.stringify(series) !== JSON.stringify(charts[2].series)) charts[2].name(series);
}

// Tables

const poolOf = (node) => state.pools.find((pool) => pool.id === node.pool && pool.cell === node.cell);

const nodes = new Table(at("nodes"), [
  ["node", (node) => node.id, { head: true }],
  ["health", (node) => [badge(node.health), el("span", { class: "muted why" }, why(node))], { depends: (node) => `${node.health} ${why(node)}` }],
  ["slots", (node) => meter(node.leased + node.extra, node.slots), { depends: (node) => `${node.leased + node.extra}/${node.slots}` }],
  ["streams", (node) => (node.streams ? `${node.streams_open} / ${node.streams}` : "–")],
  ["languages", (node) => languages(poolOf(node)?.languages)],
  ["services", (node) => poolOf(node)?.services.join(" ") ?? "?"],
  ["instance", (node) => (node.health === "offline" ? "–" : node.instance)],
  ["machine", (node) => `${node.platform} ${node.version}`],
  ["", (node) => drainButton(node), { depends: (node) => `${node.id} ${node.drained_by_operator}` }],
], { empty: "no node is registered: start one with `lingua node`" });

function why(node) {
  if (node.health === "offline") return `silent for ${age(state.at_ms - node.beat_at_ms)}`;
  if (node.over_by.length) return node.over_by.map((over) => `${over.resource} ${Math.round(over.percent)} %`).join(", ");
  return node.health === "drained" ? "by an operator" : "";
}

function drainButton(node) {
  const draining = !node.drained_by_operator;
  const verb = draining ? "Drain" : "Resume";
  const button = el("button", { type: "button", class: draining ? "quiet" : "" }, verb);
  button.setAttribute("aria-label", `${verb} ${node.id}`);
  let isSure = !draining;
  button.addEventListener("click", async () => {
    if (!isSure) {
      // Work in progress is finished, but a second press is cheaper than a wrong one.
      isSure = true;
      button.textContent = "Sure?";
      button.setAttribute("aria-label", `Really drain ${node.id}?`);
      setTimeout(() => {
        if (!button.isConnected || button.disabled) return;
        isSure = false;
        button.textContent = verb;
        button.setAttribute("aria-label", `${verb} ${node.id}`);
      }, SURE_MS);
      return;
    }
    button.disabled = true;
    try {
      const answer = await ask(`/api/v1/nodes/${encodeURIComponent(node.id)}/drain`, { draining });
      at("action").textContent = draining
        ? `${node.id} gets no new work; it finishes ${count(answer.leased, "job")}.`
        : `${node.id} gets work again.`;
    } catch (error) {
      at("action").textContent = `${node.id}: ${error.message}`;
      button.disabled = false;
    }
  });
  return button;
}

const queues = new Table(at("queues"), [
  ["cell", (queue) => queue.cell, { head: true }],
  ["waiting", (queue) => String(queue.waiting), { number: true }],
  ["nodes", (queue) => String(queue.nodes), { number: true }],
  ["what waits", (queue) => few(queue.demands.map((one) => `${demand(one.demand)}: ${one.jobs}${one.jobs >= 20 ? "+" : ""}`), 3) || "–"],
], { key: (queue) => queue.cell });

const pools = new Table(at("pools"), [
  ["languages", (pool) => languages(pool.languages) + (pool.is_cut ? " …" : ""), { head: true }],
  ["services", (pool) => pool.services.join(" ") || "none"],
  ["nodes", (pool) => `${pool.nodes}${pool.offline ? ` (${pool.offline} offline)` : ""}`, { number: true }],
  ["free", (pool) => String(pool.free), { number: true }],
  ["labels", (pool) => [...pool.labels, pool.private_to ? `only ${pool.private_to === "!" ? "paired" : pool.private_to}` : ""].filter(Boolean).join(" ") || "–"],
], { key: (pool) => `${pool.cell} ${pool.id}`, empty: "no node is registered" });

const instances = new Table(at("instances"), [
  ["instance", (one) => (/^https?:/.test(one.url) && !one.is_here ? [el("a", { href: `${one.url.replace(/\/$/, "")}/console` }, one.id)] : [one.is_here ? el("b", {}, one.id) : one.id]), { head: true, depends: (one) => `${one.url} ${one.is_here} ${one.id}` }],
  ["state", (one) => badge(one.state), { depends: (one) => one.state }],
  ["up", (one) => (one.started_at_ms ? age(state.at_ms - one.started_at_ms) : "–"), { number: true }],
  ["nodes", (one) => String(one.nodes), { number: true }],
  ["inbox", (one) => String(one.inbox), { number: true }],
  ["release", (one) => one.version || "–"],
  ["where", (one) => (one.host ? `${one.host} ${one.pid}` : "–")],
]);

const letters = new Table(at("letters"), [
  ["id", (one) => one.id, { head: true }],
  ["to", (one) => one.instance],
  ["kind", (one) => one.kind],
  ["reason", (one) => one.reason],
  ["age", (one) => age(state.at_ms - one.moved_at_ms), { number: true }],
], { key: (one) => `${one.instance} ${one.id}` });

const sessions = new Table(at("sessions"), [
  ["session", (one) => el("button", { type: "button", class: "plain", on: { click: () => tellStory(one.id) } }, short(one.id)), { head: true, depends: (one) => one.id }],
  ["languages", (one) => `${one.source} › ${one.targets.join(", ")}`],
  ["now", (one) => [one.connected ? "" : "away", one.backlog ? `${one.backlog} waiting` : ""].filter(Boolean).join(", ") || "–"],
  ["room", (one) => one.room ?? "–"],
  ["open for", (one) => age(state.at_ms - one.opened_at_ms), { number: true }],
]);

const rooms = new Table(at("rooms"), [
  ["room", (one) => one.code, { head: true }],
  ["members", (one) => `${one.members}${one.away ? ` (${one.away} away)` : ""}`, { number: true }],
  ["languages", (one) => few(one.languages)],
  ["last speech", (one) => `${age(state.at_ms - one.spoke_at_ms)} ago`, { number: true }],
], { key: (one) => one.code });

const short = (id) => (id.length > 14 ? `${id.slice(0, 12)}…` : id);

// Drawing

function tile(name, value, note, level) {
  return el("div", { class: `tile ${level ?? ""}` }, el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", { class: "muted" }, note)));
}

function drawTiles() {
  const all = Object.values(state.nodes);
  const working = all.filter((node) => WORKING.has(node.health));
  const slots = sum(working.map((node) => node.slots)), taken = sum(working.map((node) => node.leased + node.extra));
  const waiting = sum(state.queues.map((queue) => queue.waiting));
  const recent = state.rates.rows.filter((row) => row.at_ms > state.at_ms - 70_000);
  const seconds = Math.max(1, sum(recent.map((row) => row.covers_ms)) / 1000);
  const spoken = sum(recent.map((row) => row.utterances ?? 0));
  const refused = sum(recent.map((row) => sum(Object.values(row.refused ?? {}))));
  const lost = sum(recent.map((row) => sum(LOST.map((name) => row.outcomes?.[name] ?? 0))));
  const took = recent.some((row) => row.mean_ms !== undefined);
  const p95 = Math.max(0, ...recent.map((row) => row.p95_ms ?? 0));
  at("tiles").replaceChildren(
    tile("sessions", String(state.sessions.total), count(state.rooms.total, "room")),
    tile("utterances", `${rate(spoken / seconds)}/s`, `${count(state.service.jobs, "job")} under way`),
    tile("time to result", took ? duration(mean(recent, (row) => row.mean_ms)) : "–", took ? `95 %: ${quantile(p95)}` : "nothing said lately"),
    tile("nodes", `${working.length} / ${state.nodes_total}`, working.length === state.nodes_total ? "all take work" : "take work", working.length ? (working.length < all.length ? "warn" : "") : "bad"),
    tile("slots", `${taken} / ${slots}`, slots ? `${Math.round((taken / slots) * 100)} % taken` : "none", slots && taken >= slots ? "warn" : ""),
    tile("waiting jobs", String(waiting), "for a node", waiting > slots ? "bad" : waiting ? "warn" : ""),
    tile("without a result", String(lost), "in the last minute", lost ? "warn" : ""),
    tile("refusals", String(refused), "in the last minute", refused ? "warn" : ""),
  );
}

let verdictShown = "";

function drawVerdict() {
  const text = JSON.stringify(state.verdict);
  if (text === verdictShown) return; // a live region is told again only if it says something else
  verdictShown = text;
  const { verdict } = state;
  at("verdict").dataset.state = verdict.state;
  at("sentence").textContent = verdict.state === "well" ? sentenceCase(verdict.sentence) : sentenceCase(verdict.problems[0].text);
  const more = verdict.problems.slice(1);
  const items = verdict.problems.length
    ? [...detail(verdict.problems[0]), ...more.map((problem) => el("li", { class: problem.level }, sentenceCase(problem.text), names(problem)))]
    : [];
  at("problems").replaceChildren(...items);
  document.title = `${{ well: "✓", warn: "!", bad: "✗" }[verdict.state]} Lingua console`;
}

const sentenceCase = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const names = (problem) => (problem.about.length > 1 ? el("span", { class: "muted" }, ` ${few(problem.about)}`) : null);
const detail = (problem) => (problem.about.length > 1 ? [el("li", { class: problem.level }, few(problem.about, 8))] : []);

const byTrouble = (a, b) => order(a) - order(b) || a.id.localeCompare(b.id, "en", { numeric: true });
const order = (node) => ["offline", "degraded", "busy", "drained", "draining", "registering"].indexOf(node.health) + 1 || 9;

function draw() {
  const { service } = state;
  at("service").textContent = `${service.service} ${service.release}, ${service.workers > 1 ? `${service.workers} workers, ` : ""}up ${age(state.at_ms - service.started_at_ms)}`;
  drawVerdict();
  drawTiles();
  nameRefusals(state.rates.rows);
  for (const chart of charts) chart.show(state.rates, state.at_ms);
  const all = Object.values(state.nodes).sort(byTrouble);
  nodes.show(all);
  at("nodes-note").textContent = all.length < state.nodes_total ? `${all.length} of ${state.nodes_total} are shown; \`lingua nodes\` lists all.` : "";
  queues.show(state.queues);
  pools.show(state.pools);
  instances.show(state.instances);
  letters.show(state.dead_letters.newest);
  at("letters-note").textContent = state.dead_letters.total
    ? `${count(state.dead_letters.total, "message")} between instances could not be applied; no speech is lost by that. \`lingua dlq show ID\`, \`replay\`, \`drop\`.`
    : "Messages between instances that could not be applied.";
  sessions.show(state.sessions.newest);
  at("sessions-note").textContent = listNote(state.sessions, "session");
  rooms.show(state.rooms.newest);
  at("rooms-note").textContent = listNote(state.rooms, "room");
  drawCodes();
}

function listNote(list, noun) {
  const whole = `${count(list.total, noun)} of ${state.service.service}`;
  return list.newest.length < list.total ? `${whole}; the newest ${list.newest.length} are shown.` : `${whole}.`;
}

let codesShown = "";

function drawCodes() {
  const codes = new Set();
  for (const { languages: known } of state.pools) {
    for (const pair of known.pairs ?? []) pair.split(">").forEach((code) => codes.add(code));
    for (const code of [...(known.sources ?? []), ...(known.targets ?? [])]) codes.add(code);
  }
  const text = [...codes].sort().join(" ");
  if (text === codesShown) return;
  codesShown = text;
  at("codes").replaceChildren(...[...codes].sort().map((code) => el("option", { value: code })));
}

// What a person asks

async function answered(place, work) {
  place.setAttribute("aria-busy", "true");
  try {
    place.replaceChildren(...(await work()));
  } catch (error) {
    place.replaceChildren(el("p", { class: "said bad" }, error.message));
  } finally {
    place.removeAttribute("aria-busy");
  }
}

async function explain() {
  const query = new URLSearchParams({ from: at("explain-from").value.trim(), to: at("explain-to").value.trim() });
  const { cells } = await ask(`/api/v1/explain?${query}`);
  return cells.flatMap((cell) => {
    const { verdict } = cell;
    const said = verdict.node ? `${cell.cell}: to ${verdict.node}` : `${cell.cell}: no node (${verdict.label || verdict.code})`;
    const rank = (node) => (node.chosen ? 0 : node.removed_by ? 2 : 1);
    const rows = [...cell.nodes].sort((a, b) => rank(a) - rank(b)).map((node) =>
      el("tr", {}, el("th", { scope: "row" }, node.node), el("td", {}, meter(node.taken, node.slots)),
        el("td", {}, node.chosen ? badge("chosen") : node.removed_by ? `${node.removed_by}${node.lacks.length ? `: lacks ${node.lacks.join(", ")}` : ""}` : "could take it")));
    const heads = el("thead", {}, el("tr", {}, ...["node", "slots", "result"].map((head) => el("th", { scope: "col" }, head))));
    return [el("p", { class: verdict.node ? "said" : "said bad" }, said), rows.length ? el("div", { class: "scroll" }, el("table", {}, heads, el("tbody", {}, ...rows))) : el("p", { class: "muted" }, "This cell has no nodes.")];
  });
}

function tellStory(id) {
  at("story-id").value = id;
  answered(at("story"), () => story(id));
  at("story-title").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

at("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  answered(at("explanation"), explain);
});
at("story-form").addEventListener("submit", (event) => {
  event.preventDefault();
  tellStory(at("story-id").value.trim());
});

// The way in

let entered = null;

at("door-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(at("token").value);
  at("token").value = "";
  entered?.();
});
at("forget").addEventListener("click", () => {
  setToken("");
  location.reload();
});

/** Show how the connection is; if it was refused, wait for another token. */
function linked(how, whyNot) {
  const link = at("link");
  const text = { live: "live", lost: "connection lost", refused: "no access" }[how];
  const shown = how === "lost" ? `${text}: ${whyNot}` : text;
  if (link.textContent !== shown) link.textContent = shown;
  link.dataset.state = how;
  document.body.classList.toggle("stale", how !== "live");
  at("door").hidden = how !== "refused";
  at("forget").hidden = !hasToken();
  if (how !== "refused") return undefined;
  at("board").hidden = true;
  // What to do about it stands below, for people; the rest of the text is for programs.
  at("door-why").textContent = `${sentenceCase(whyNot.split(";")[0])}.`;
  at("token").focus();
  return new Promise((done) => { entered = done; });
}

follow((heard) => {
  state = heard;
  at("board").hidden = false;
  draw();
}, linked);
