/** What the page asks of the service beside the session: its languages, links for guests. */

import { ofTab } from "./memory.js";

const RETRY_S = 5;
// What the service says by its status; which text tells it.
const BY_STATUS = { 429: "fullHere", 503: "full" };
const BY_SOCKETS = {
  full: "full", full_for_address: "fullHere", draining: "restarting",
  origin_not_allowed: "wrongAddress",
};

/** The token of a link (`#token=…`), or the one that was used before in this tab. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    ofTab.set("token", given);
    // Not for the eyes of whoever sees the screen or gets the address copied.
    history.replaceState(null, "", location.pathname + location.search);
  }
  return given || ofTab.get("token");
}

export function keepToken(token) {
  ofTab.set("token", token || null);
}

/**
 * What the service is, or why it cannot be used now. A browser does not tell a page why a socket
 * was refused; this asks the service, which refuses requests for the same reasons or tells them.
 * @returns {Promise<{config?: object, problem?: string, retryInS?: number}>}
 */
export async function askConfig() {
  const query = new URLSearchParams({ origin: location.origin });
  let response;
  try {
    response = await fetch(`/web/config.json?${query}`, { cache: "no-store" });
  } catch {
    return { problem: "unreachable" };
  }
  if (!response.ok) {
    const retryInS = Number(response.headers.get("Retry-After")) || RETRY_S;
    return { problem: BY_STATUS[response.status] ?? "unreachable", retryInS };
  }
  const config = await response.json();
  const retryInS = config.retry_after_s || RETRY_S;
  return { config, problem: BY_SOCKETS[config.sockets], retryInS };
}

/** A link for guests of a room; with tokens on it carries a short-lived token of its own. */
export async function guestLink(code, token, scopes = ["speak", "listen"]) {
  const plainUrl = new URL(`/room/${code}`, location.href).href;
  if (!token) return { url: plainUrl };
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  try {
    const options = { method: "POST", headers, body: JSON.stringify({ scopes }) };
    const response = await fetch(`/room/${code}/invite`, options);
    if (!response.ok) return { url: plainUrl, needsToken: true };
    const { token: guest, expires_at_ms: expiresAtMs } = await response.json();
    return { url: `${plainUrl}#token=${guest}`, guest, expiresAtMs };
  } catch {
    return { url: plainUrl, needsToken: true };
  }
}
