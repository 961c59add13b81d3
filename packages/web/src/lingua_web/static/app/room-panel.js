/** The room on the page: its code as digits, picture and link, and who is here. */

import { languageName } from "./languages.js";
import { qrMatrix, qrPath } from "./qr.js";
import { guestLink } from "./service.js";
import { text } from "./texts.js";

const byId = (id) => document.getElementById(id);
const REFRESH_MS = 700;

export class RoomPanel {
  #conversation;
  #url = "";
  #members = [];
  #timer = 0;

  constructor(conversation) {
    this.#conversation = conversation;
    byId("room-button").addEventListener("click", () => this.toggle());
    byId("room-copy").addEventListener("click", () => this.#copy());
  }

  toggle(isShown = byId("room").hidden) {
    byId("room").hidden = !isShown;
    byId("room-button").setAttribute("aria-expanded", String(isShown));
  }

  /** Show the room one is in; empty: none. */
  async show(code) {
    byId("room-outside").hidden = Boolean(code);
    byId("room-inside").hidden = !code;
    byId("people").hidden = !code;
    clearInterval(this.#timer);
    if (!code) {
      this.#members = [];
      return;
    }
    byId("room-shown-code").textContent = spaced(code);
    byId("people-code").textContent = spaced(code);
    this.#timer = setInterval(() => this.showMembers(this.#members), REFRESH_MS);
    await this.#showLink(code);
  }

  async #showLink(code) {
    const { token } = this.#conversation;
    const { url, needsToken, expiresAtMs } = await guestLink(code, token);
    this.#url = url;
    draw(byId("qr"), url);
    // A screen that only shows words gets a token that can do nothing else.
    const { guest } = await guestLink(code, token, ["captions"]);
    const hash = guest ? `#token=${guest}` : "";
    const query = `?lang=${encodeURIComponent(this.#conversation.languages.reads)}`;
    byId("room-stage").href = `/room/${code}/stage${query}${hash}`;
    byId("room-overlay").href = `/room/${code}/overlay${query}${hash}`;
    const note = byId("room-link-note");
    const time = expiresAtMs ? new Date(expiresAtMs).toLocaleTimeString([], { timeStyle: "short" }) : "";
    note.textContent = needsToken ? text("linkNeedsToken") : text("linkValidUntil", { time });
    note.hidden = !needsToken && !time;
  }

  showMembers(members) {
    this.#members = members;
    const items = members.map((member) => this.#item(member));
    const list = byId("members");
    // Changed only if something is different: screen readers and fingers are in the middle of it.
    const isSame = items.length === list.children.length
      && items.every((item, index) => item.isEqualNode(list.children[index]));
    if (!isSame) list.replaceChildren(...items);
  }

  #item(member) {
    const item = document.createElement("li");
    const speaks = this.#conversation.speaksNow(member.id);
    item.classList.toggle("speaks", speaks);
    item.classList.toggle("away", member.isAway);
    const name = document.createElement("span");
    name.textContent = member.name || text("someone");
    const details = [
      member.isMe ? text("isYou") : "",
      member.lang ? text("reads", { language: languageName(member.lang) }) : "",
      member.isAway ? text("isAway") : speaks ? text("speaksNow") : "",
    ];
    const detail = document.createElement("span");
    detail.className = "detail";
    detail.textContent = details.filter(Boolean).join(" · ");
    item.append(name, detail);
    return item;
  }

  async #copy() {
    const button = byId("room-copy");
    try {
      await navigator.clipboard.writeText(this.#url);
      button.textContent = text("copied");
      setTimeout(() => { button.textContent = text("copyLink"); }, 2000);
    } catch {
      prompt(text("copyLink"), this.#url);
    }
  }
}

/** Digits in groups of three are easier to read out. */
export function spaced(code) {
  return code.replace(/(\d{3})(?=\d)/g, "$1\u2009");
}

function draw(svg, url) {
  const matrix = qrMatrix(url);
  const side = matrix.length + 8;
  svg.setAttribute("viewBox", `0 0 ${side} ${side}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", qrPath(matrix));
  svg.replaceChildren(path);
}
