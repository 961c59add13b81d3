/**
 * The browser SDK of Lingua Scheduler: a plain ES module without dependencies.
 *
 *   import { connect, Speaker } from "/sdk/lingua-client.js";
 *   const session = await connect({ source: "en", targets: ["es"] });
 *   session.addEventListener("outcome", ({ detail }) => console.log(detail.text));
 *   await session.microphone();
 *
 * docs/browser.md is the manual, lingua-client.d.ts has the types.
 */

import { Session } from "./session.js";

export { LinguaError } from "./errors.js";
export { Microphone } from "./microphone.js";
export { Session } from "./session.js";
export { Speaker } from "./speaker.js";
export { CaptionFeed } from "./caption-feed.js";

/**
 * Open a session; resolves when it is open.
 * @param {import("./lingua-client.d.ts").SessionOptions} options
 * @returns {Promise<Session>}
 */
export async function connect(options) {
  const session = new Session(options);
  await session.open();
  if (options.room) await session.joinRoom(options.room);
  return session;
}
