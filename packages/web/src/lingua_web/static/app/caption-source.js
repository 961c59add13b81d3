/**
 * Where a stage or an overlay gets its captions: the room's feed, which needs no membership; or, if
 * the service has no such feed, a session that joins the room and only listens.
 */

import { CaptionFeed, LinguaError, Session } from "../sdk/lingua-client.js";

/**
 * Follow a room in one language until it ends. `on` has functions `caption`, `partial`, `state`.
 * @returns {Promise<void>} rejects with `LinguaError` if it is refused
 */
export async function followCaptions({ room, lang, token, name, signal }, on) {
  const feed = new CaptionFeed({ room, lang, token });
  signal.addEventListener("abort", () => feed.close());
  feed.addEventListener("caption", ({ detail }) => on.caption(detail));
  feed.addEventListener("partial", ({ detail }) => on.partial(detail));
  feed.addEventListener("state", ({ detail }) => on.state(detail.state));
  try {
    await feed.run();
  } catch (error) {
    if (error.code !== "NOT_FOUND") throw error;
    await listenAsMember({ room, lang, token, name, signal }, on);
  }
}

async function listenAsMember({ room, lang, token, name, signal }, on) {
  const session = new Session({ source: lang, targets: [lang], token, speech: false });
  signal.addEventListener("abort", () => session.close());
  const names = new Map();
  session.addEventListener("state", ({ detail }) => on.state(detail.state));
  session.addEventListener("members", ({ detail }) => {
    for (const member of detail.members) names.set(member.id, member.name);
  });
  session.addEventListener("outcome", ({ detail }) => {
    const { speaker, index, text, kind } = detail;
    if (kind === "translation") on.caption({ speaker, name: names.get(speaker) ?? "", index, text, lang });
    else on.partial({ speaker, index, stable: "", unstable: "" });
  });
  session.addEventListener("partial", ({ detail }) => {
    const own = detail.lang === lang ? detail : undefined;
    const words = detail.translations.find((one) => one.lang === lang) ?? own;
    const { speaker, index } = detail;
    if (words) on.partial({ ...words, speaker, index, name: names.get(speaker) ?? "" });
  });
  await session.open();
  await session.joinRoom(room, { preferredLang: lang, name });
  await new Promise((resolve, reject) => {
    session.addEventListener("room", ({ detail }) => detail.room || resolve());
    session.addEventListener("state", ({ detail }) => {
      if (detail.state !== "closed") return;
      if (detail.error instanceof LinguaError) reject(detail.error);
      else resolve();
    });
  });
}
