// The state that the stream tells: a snapshot, and updates that have what changed. Pure.

export const ROWS_MAX = 360;

/** Return the state after an event; the given one is not changed. */
export function applied(state, name, data) {
  if (name === "snapshot") return data;
  if (state === null) return null;
  const next = { ...state, ...data };
  if (data.nodes) {
    next.nodes = { ...state.nodes, ...data.nodes };
    for (const [id, node] of Object.entries(data.nodes)) if (node === null) delete next.nodes[id];
  }
  if (data.rates) next.rates = { ...data.rates, rows: merged(state.rates.rows, data.rates.rows) };
  return next;
}

function merged(known, changed) {
  const rows = known.slice();
  for (const row of changed) {
    const at = rows.findLastIndex((one) => one.at_ms <= row.at_ms);
    if (at >= 0 && rows[at].at_ms === row.at_ms) rows[at] = row;
    else rows.splice(at + 1, 0, row);
  }
  return rows.slice(-ROWS_MAX);
}

/** Read server-sent events from text that arrives in pieces: [events, the unfinished rest]. */
export function parsed(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop();
  const events = [];
  for (const block of blocks) {
    let name = "message", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) events.push([name, JSON.parse(data)]);
  }
  return [events, rest];
}
