// One session's timeline: where the time of its last utterances went.

import { age, count, duration, el, sum, time } from "./format.js";
import { ask, Refused } from "./stream.js";
import { badge } from "./tables.js";

const LATEST = 10;
const PARTS = [
  ["endpointing_ms", "end of speech found"], ["queue_ms", "wait for a node"], ["place_ms", "placing"],
  ["push_ms", "push"], ["retry_ms", "lost attempts"], ["accept_ms", "accepting"], ["asr_ms", "recognising"],
  ["nmt_ms", "translating"], ["tts_ms", "speaking"], ["node_other_ms", "node, other"],
  ["settle_ms", "settling"], ["order_wait_ms", "wait for order"],
];

/** Return the elements that tell about a session, a job or a trace. */
export async function story(id) {
  const session = await found(`/api/v1/sessions/${encodeURIComponent(id)}`);
  const jobs = session ? await jobsOf(session) : (await ask(`/api/v1/history?of=${encodeURIComponent(id)}`)).jobs;
  const parts = session ? [about(session)] : [];
  if (jobs.length) parts.push(legend(jobs), ...bars(jobs));
  else parts.push(el("p", {}, session ? "No utterance is on record." : "Nothing is on record under this id here."));
  return parts;
}

async function found(path) {
  try {
    return await ask(path);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

async function jobsOf(session) {
  const first = Math.max(0, session.next_index - LATEST);
  const wanted = Array.from({ length: session.next_index - first }, (_, i) => first + i);
  const known = await Promise.all(wanted.map((index) => ask(`/api/v1/history?of=${encodeURIComponent(`${session.id}:${index}`)}`)));
  return known.reverse().flatMap((history) => history.jobs);
}

function about(session) {
  const facts = [
    ["languages", `${session.source} › ${session.targets.join(", ")}`],
    ["open for", age(session.age_ms)],
    ["connected", session.connected ? "yes" : "no"],
    ["room", session.room ?? "none"],
    ["utterances", `${session.next_index} (${session.open_utterances} without an outcome)`],
    ["waiting", String(session.backlog)],
    ["speech", `${duration(session.coverage.delivered_ms)} of ${duration(session.coverage.admitted_ms)} delivered`],
  ];
  return el("dl", { class: "facts" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const used = (jobs) => PARTS.map((part, index) => [...part, index]).filter(([name]) => jobs.some((job) => job.timeline?.[name]));

function legend(jobs) {
  return el("ul", { class: "legend" }, ...used(jobs).map(([, label, index]) =>
    el("li", {}, el("span", { class: `key t${index}` }), label)));
}

function bars(jobs) {
  const longest = Math.max(1, ...jobs.map((job) => job.timeline?.total_ms ?? 0));
  return [el("ol", { class: "bars" }, ...jobs.map((job) => one(job, longest)))];
}

function one(job, longest) {
  const end = job.outcome || job.state;
  const tries = job.attempts.map((attempt) => `${attempt.node} ${attempt.reason || "running"}`);
  const bar = el("span", { class: "stack", "aria-hidden": "true" });
  const told = [];
  for (const [index, [name, label]] of PARTS.entries()) {
    const ms = job.timeline?.[name] ?? 0;
    if (!ms) continue;
    const part = el("span", { class: `t${index}`, title: `${label} ${duration(ms)}` });
    part.style.width = `${(ms / longest) * 100}%`;
    bar.append(part);
    told.push(`${label} ${duration(ms)}`);
  }
  const rest = sum(PARTS.map(([name]) => job.timeline?.[name] ?? 0)) ? told.join(", ") : "times are known on the session's own instance only";
  return el("li", {},
    el("p", {}, el("b", {}, `#${job.utterance_index} ${job.lane}`), " ", badge(end), " ", duration(job.timeline?.total_ms ?? null),
      el("span", { class: "muted" }, ` ${time(job.created_at_ms)}, ${count(job.attempts.length, "attempt")}: ${tries.join("; ") || "none"}${job.reason ? ` (${job.reason})` : ""}`)),
    bar, el("p", { class: "muted small" }, rest));
}
