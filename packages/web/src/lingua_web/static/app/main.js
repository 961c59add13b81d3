/** The page for people: connects what they press to the conversation, and shows what it reports. */

import { Conversation } from "./conversation.js";
import { LanguagePicker } from "./language-picker.js";
import { ServedLanguages, languageName } from "./languages.js";
import { kept } from "./memory.js";
import { Notice, TOKEN_CODES, sentence } from "./problems.js";
import { RoomPanel, spaced } from "./room-panel.js";
import { askConfig, keepToken, takeToken } from "./service.js";
import { PAGE_LANGUAGES, fillTexts, loadTexts, pageLanguage, text } from "./texts.js";
import { Transcript, saveFile } from "./transcript.js";

const byId = (id) => document.getElementById(id);
const TYPES = { txt: "text/plain", srt: "application/x-subrip", vtt: "text/vtt" };
// Quiet speech must move the meter too: it shows loudness as ears hear it.
const METER_FLOOR_DB = -50;
// How often a page without any translator looks for one.
const LOOK_MS = 4000;

const state = { name: "idle", served: new ServedLanguages(), wantedRoom: "" };
const notice = new Notice();
const transcript = new Transcript();

const view = {
  showState(name, { isBack = false } = {}) {
    const wasAway = state.name === "reconnecting";
    state.name = name;
    showStatus();
    if (isBack && wasAway) showNews(text("reconnected"));
    const isOn = conversation.isSpeaking || name === "connecting";
    byId("talk").setAttribute("aria-pressed", String(isOn));
    byId("talk-text").textContent = text(isOn ? "stop" : "start");
    document.body.classList.toggle("is-recording", conversation.isSpeaking);
    document.body.dataset.state = name;
  },

  showLevel(level) {
    const decibels = 20 * Math.log10(Math.max(level, 1e-5));
    const shown = Math.max(0, Math.min(1, 1 - decibels / METER_FLOOR_DB));
    document.body.style.setProperty("--level", shown.toFixed(3));
    byId("meter").setAttribute("aria-valuenow", String(Math.round(shown * 100)));
  },

  showOutcome(outcome, durationMs) {
    const { speaker: speakerId, index, lang, textAsr, reason } = outcome;
    if (outcome.kind === "missing" && reason === "silence_detected") {
      transcript.dropPartial(speakerId, index);
      return;
    }
    const isSame = !lang; // a listener of the speaker's own language
    const failed = reason === "expired" ? "notTranslatedInTime" : "notTranslated";
    transcript.addFinal({
      speakerId, index, speaker: conversation.room ? speakerName(outcome) : "",
      original: isSame ? "" : textAsr, translation: outcome.text, lang: lang || undefined,
      sourceLang: outcome.isOwn ? conversation.languages.source : undefined,
      note: outcome.kind === "missing" ? text(failed) : "", atMs: Date.now(), durationMs,
    });
  },

  showEarlier({ speaker, name, index, text: translation, lang, atMs }) {
    transcript.addEarlier({
      speakerId: speaker, index, speaker: name || text("someone"), translation, lang, atMs,
    });
  },

  showPartial(partial) {
    const wanted = readLanguage();
    const translation = partial.translations.find((one) => one.lang === wanted);
    transcript.showPartial({
      speakerId: partial.speaker, index: partial.index,
      speaker: conversation.room ? speakerName(partial) : "", stable: partial.stable,
      unstable: partial.unstable, translation, lang: wanted, sourceLang: partial.lang,
    });
  },

  /** In a room one's own words go to the others; here only what was recognised is kept. */
  showPassed(speakerId, index) {
    const original = transcript.partialText(speakerId);
    if (!original) return;
    transcript.addFinal({
      speakerId, index, speaker: text("you"), original, note: text("heardBy"), atMs: Date.now(),
    });
  },

  showMembers(members) {
    roomPanel.showMembers(members);
    showStatus();
  },

  showRoom(code, reason) {
    state.wantedRoom = "";
    document.body.classList.remove("is-invited");
    roomPanel.show(code);
    showLanguages();
    byId("whole-transcript").hidden = !code;
    document.title = code ? `${spaced(code)} · Lingua` : text("title");
    showHint();
    history.replaceState(null, "", code ? `/room/${code}` : "/");
    if (!code && reason) showNews(text(reason === "left" ? "leftRoom" : "roomEnded"));
  },

  showReset() {
    transcript.dropPartials();
    showNews(text("resetNotice"));
  },

  showProblem,
};

const conversation = new Conversation(view);
const roomPanel = new RoomPanel(conversation);
let picker;

function showHint() {
  byId("empty-hint").textContent = text(conversation.room ? "listenerHint" : "startHint");
  byId("empty-more").hidden = Boolean(conversation.room);
}

function showStatus() {
  const audience = { others: "listening", same: "listeningSame", nobody: "listeningAlone" };
  const keys = { idle: "", listener: "", listening: audience[conversation.audience] };
  const key = keys[state.name] ?? state.name;
  const status = byId("status");
  status.textContent = key ? text(key) : "";
  status.dataset.kind = state.name === "reconnecting" ? "trouble" : "";
}

function speakerName({ speaker, isOwn }) {
  return isOwn ? text("you") : conversation.nameOf(speaker) || text("someone");
}

function showNews(words) {
  notice.show(words, [], "news");
}

async function showProblem(code, { details, isPassing = false, retryAfterMs = 0 } = {}) {
  if (code === "UNSERVED_LANGUAGES" || code === "NO_AVAILABLE_NODE") {
    await refreshConfig();
    const { source, target } = conversation.languages;
    if (!details?.tgt_lang || details.tgt_lang === target) {
      notice.showNoNode(state.served, source, target, chooseAndStart);
    }
    return;
  }
  if (code === "CONNECTION_LOST") return showUnreachable();
  if (code === "MICROPHONE_ENDED") return notice.show(text("micEnded"));
  if (TOKEN_CODES.has(code)) askForToken();
  // What was missed is told in its place among the words.
  const isAboutOneSentence = isPassing && details?.utterance_index !== undefined;
  if (isAboutOneSentence && code !== "BUSY") return undefined;
  if (code === "BUSY" && retryAfterMs) return notice.showWait("full", retryAfterMs / 1000, start);
  notice.show(sentence(code));
  return undefined;
}

async function showUnreachable() {
  const { problem = "noSocket", retryInS } = await askConfig();
  showRefusal(problem, retryInS, start);
}

/** The service cannot be used now: say what it says, and when the page tries again. */
function showRefusal(problem, retryInS, again) {
  if (problem === "wrongAddress") notice.show(text(problem, { origin: location.origin }));
  else if (problem === "unreachable") {
    notice.show(text(problem), [{ label: text("tryAgain"), act: again }]);
  } else notice.showWait(problem, retryInS, again);
}

function askForToken() {
  keepToken("");
  conversation.token = "";
  byId("token-form").hidden = false;
  byId("talk").disabled = true;
}

// What people press

async function start() {
  notice.hide();
  const { source, target } = conversation.languages;
  if (!state.served.serves(source, target)) await refreshConfig();
  if (!conversation.room && !state.served.serves(source, target)) {
    notice.showNoNode(state.served, source, target, chooseAndStart);
    return;
  }
  await conversation.startSpeaking();
}

function chooseAndStart(source, target) {
  setLanguages({ source, target });
  if (!conversation.isSpeaking) start();
}

function setLanguages(change) {
  const chosen = { ...conversation.languages, ...change };
  conversation.changeLanguages(chosen);
  kept.set("languages", chosen);
  showLanguages();
}

function isInRoom() {
  return Boolean(conversation.room || state.wantedRoom);
}

/** In a room one reads what others say; alone, what oneself says becomes. */
function readLanguage() {
  return isInRoom() ? conversation.languages.reads : conversation.languages.target;
}

function showLanguages() {
  byId("source").textContent = languageName(conversation.languages.source);
  byId("target").textContent = languageName(readLanguage());
  byId("target-label").textContent = text(isInRoom() ? "iReadInRoom" : "iRead");
  byId("swap").hidden = isInRoom();
}

async function chooseSource() {
  const { source, target } = conversation.languages;
  const codes = withCurrent(state.served.sources, source);
  const chosen = await picker.choose("chooseSpoken", codes, source);
  if (!chosen) return;
  const targets = state.served.targetsOf(chosen);
  const keeps = targets.includes(target) || !targets.length;
  setLanguages({ source: chosen, target: keeps ? target : targets[0] });
}

async function chooseTarget() {
  // In a room others speak other languages.
  const codes = isInRoom()
    ? [...new Set([...state.served.targets, ...state.served.sources])]
    : state.served.targetsOf(conversation.languages.source);
  const current = readLanguage();
  const chosen = await picker.choose("chooseRead", withCurrent(codes, current), current);
  if (chosen) setLanguages(isInRoom() ? { reads: chosen } : { target: chosen });
}

function withCurrent(codes, current) {
  return codes.includes(current) ? codes : [current, ...codes];
}

function swap() {
  const { source, target } = conversation.languages;
  setLanguages({ source: target, target: source });
}

function save(format) {
  const name = conversation.room ? `lingua-${conversation.room}` : "lingua";
  saveFile(`${name}.${format}`, TYPES[format], transcript.heard.as(format));
}

function setAloud(isAloud) {
  conversation.isAloud = isAloud;
  conversation.speaker.isMuted = !isAloud;
  byId("playback-more").hidden = !isAloud;
  kept.set("aloud", isAloud);
  if (isAloud) conversation.speaker.unlock();
}

async function join(event) {
  event.preventDefault();
  const code = byId("room-code").value.replace(/\D/g, "");
  conversation.name = byId("own-name").value.trim();
  if (await conversation.joinRoom(code)) roomPanel.toggle(false);
}

async function createRoom() {
  conversation.name = byId("own-name").value.trim();
  if (await conversation.createRoom()) roomPanel.toggle(true);
}

async function saveWhole(event) {
  event.preventDefault();
  const query = new URLSearchParams({ lang: conversation.languages.reads, format: "txt" });
  const headers = conversation.token ? { Authorization: `Bearer ${conversation.token}` } : {};
  const response = await fetch(`/room/${conversation.room}/transcript?${query}`, { headers });
  if (response.ok) saveFile(`lingua-${conversation.room}.txt`, TYPES.txt, await response.text());
  else save("txt");
}

function useToken(event) {
  event.preventDefault();
  const token = byId("token").value.trim();
  keepToken(token);
  conversation.token = token;
  byId("token").value = "";
  byId("token-form").hidden = true;
  byId("talk").disabled = false;
  notice.hide();
}

function connectButtons() {
  byId("talk").addEventListener("click", () => {
    if (conversation.isSpeaking) conversation.stopSpeaking();
    else if (state.name !== "connecting") start();
  });
  byId("source").addEventListener("click", chooseSource);
  byId("target").addEventListener("click", chooseTarget);
  byId("swap").addEventListener("click", swap);
  byId("room-create").addEventListener("click", createRoom);
  byId("room-join").addEventListener("submit", join);
  byId("room-leave").addEventListener("click", () => conversation.leaveRoom());
  byId("token-form").addEventListener("submit", useToken);
  byId("own-name").addEventListener("change", () => kept.set("name", byId("own-name").value.trim()));
  connectPlayback();
  connectSettings();
}

function connectPlayback() {
  const { speaker } = conversation;
  byId("aloud").addEventListener("change", (event) => setAloud(event.target.checked));
  byId("volume").addEventListener("input", (event) => {
    speaker.volume = event.target.valueAsNumber / 100;
    kept.set("volume", event.target.valueAsNumber);
  });
  byId("skip").addEventListener("click", () => speaker.skip());
  speaker.addEventListener("playing", () => { byId("skip").disabled = false; });
  speaker.addEventListener("idle", () => { byId("skip").disabled = true; });
}

function connectSettings() {
  const dialog = byId("settings");
  byId("settings-button").addEventListener("click", () => dialog.showModal());
  byId("settings-close").addEventListener("click", () => dialog.close());
  byId("clear").addEventListener("click", () => transcript.clear());
  byId("whole-transcript-link").addEventListener("click", saveWhole);
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => save(button.dataset.save));
  }
  byId("pause-while-speaking").addEventListener("change", (event) => {
    conversation.pausesWhileSpeaking = event.target.checked;
    kept.set("pausesWhileSpeaking", event.target.checked);
  });
  const select = byId("page-language");
  for (const [code, name] of Object.entries(PAGE_LANGUAGES)) {
    select.append(new Option(name, code, false, code === pageLanguage()));
  }
  select.addEventListener("change", () => changePageLanguage(select.value));
}

async function changePageLanguage(code) {
  kept.set("pageLanguage", code);
  await loadTexts(code);
  fillTexts();
  showLanguages();
  view.showState(state.name);
  showHint();
  if (!conversation.room) document.title = text("title");
}

function restore() {
  conversation.name = kept.get("name");
  byId("own-name").value = conversation.name;
  byId("volume").value = kept.get("volume", 100);
  conversation.speaker.volume = kept.get("volume", 100) / 100;
  conversation.pausesWhileSpeaking = kept.get("pausesWhileSpeaking", true);
  byId("pause-while-speaking").checked = conversation.pausesWhileSpeaking;
  byId("aloud").checked = kept.get("aloud", false);
  conversation.isAloud = byId("aloud").checked;
  conversation.speaker.isMuted = !conversation.isAloud;
  byId("playback-more").hidden = !conversation.isAloud;
}

async function refreshConfig() {
  const { config, problem, retryInS } = await askConfig();
  if (config) state.served = new ServedLanguages(config);
  else showRefusal(problem, retryInS, refreshConfig);
  return config;
}

/** Of what is served, the languages of this person, as far as they are known. */
function guessLanguages() {
  const remembered = kept.get("languages", {});
  const guess = state.served.guess(navigator.languages ?? [], remembered);
  conversation.languages = { ...guess, reads: remembered.reads || guess.source };
  showLanguages();
}

/** Nobody translates: say so, and look again until somebody does. */
async function waitForNodes() {
  const words = text("noNodeAtAll");
  notice.show(words);
  while (state.served.isEmpty) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const { config } = await askConfig();
    if (config) state.served = new ServedLanguages(config);
  }
  if (notice.words === words) notice.hide();
  if (!conversation.room && !conversation.isSpeaking) guessLanguages();
}

/** `/room/CODE`: a button joins, because only a press lets a page make sounds. */
function wantRoom() {
  const [, code] = location.pathname.match(/^\/room\/(\d{6})$/) ?? [];
  if (!code) return;
  state.wantedRoom = code;
  byId("room-code").value = code;
  byId("room-title").textContent = text("joinTitle", { code: spaced(code) });
  document.body.classList.add("is-invited");
  roomPanel.toggle(true);
  showLanguages();
}

async function main() {
  const token = takeToken();
  const [config] = await Promise.all([askConfig(), loadTexts()]);
  fillTexts();
  document.title = text("title");
  picker = new LanguagePicker();
  connectButtons();
  restore();
  conversation.token = token;
  if (config.config) state.served = new ServedLanguages(config.config);
  else showRefusal(config.problem, config.retryInS, refreshConfig);
  guessLanguages();
  byId("talk").disabled = false;
  if (config.config?.tokens_required && !token) askForToken();
  if (state.served.isEmpty && config.config) waitForNodes();
  wantRoom();
  view.showState("idle");
}

main();
