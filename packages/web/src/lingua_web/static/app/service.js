/** What the page asks of the service beside the session: its languages, links for guests. */

import { ofTab } from "./memory.js";

const FULL_S = 5;

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

/** @returns {Promise<{config?: object, problem?: string, retryInS?: number}>} */
export async function askConfig() {
  let response;
  try {
    response = await fetch("/web/config.json", { cache: "no-store" });
  } catch {
    return { problem: "unreachable" };
  }
  if (response.ok) return { config: await response.json() };
  const isFull = response.status === 429 || response.status === 503;
  const retryInS = Number(response.headers.get("Retry-After")) || FULL_S;
  return isFull ? { problem: "full", retryInS } : { problem: "unreachable" };
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
