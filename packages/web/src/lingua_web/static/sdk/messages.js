/** What the server sends, as the events of a session give it: names of JavaScript, no gaps. */

export function outcomeOf(message, isOwn) {
  const isText = message.type === "translation_result";
  return {
    kind: isText ? "translation" : "missing", isOwn, speaker: message.session_id,
    index: message.utterance_index, lang: message.tgt_lang ?? "",
    textAsr: isText ? message.text_asr ?? "" : "", text: isText ? message.text_translated ?? "" : "",
    audio: (isText && message.tts_audio) || new Uint8Array(0),
    audioFormat: isText ? message.tts_format ?? "" : "", parts: message.tts_parts ?? 0,
    reason: isText ? "" : message.reason ?? "", why: message.detail ?? "",
    epoch: message.epoch ?? "", seq: message.seq ?? 0, timeline: message.timeline ?? null,
  };
}

/** A partial text of a stream: firm words, words that may change, and their translations. */
export function partialOf(message, isOwn) {
  return {
    isOwn, speaker: message.session_id, index: message.utterance_index,
    lang: message.src_lang ?? "", stable: message.stable ?? "", unstable: message.unstable ?? "",
    translations: (message.translations ?? []).map((one) => (
      { lang: one.tgt_lang, stable: one.stable ?? "", unstable: one.unstable ?? "" }
    )),
  };
}

/** A partial text of a node that recognises an utterance after it was spoken. */
export function recognisedOf(message, isOwn) {
  const isFirm = message.is_final === true;
  return {
    isOwn, speaker: message.session_id, index: message.utterance_index, lang: "",
    stable: isFirm ? message.text : "", unstable: isFirm ? "" : message.text, translations: [],
  };
}

export function speechPartOf(message) {
  return {
    speaker: message.session_id, index: message.utterance_index, lang: message.tgt_lang,
    part: message.part_index ?? 0, attempt: message.attempt_id ?? 0, audio: message.audio,
    audioFormat: message.tts_format,
  };
}

export function memberOf(one, ownId) {
  return {
    id: one.session_id, name: one.display_name ?? "", lang: one.preferred_lang ?? "",
    isAway: one.is_away === true, isMe: one.session_id === ownId, joinedAt: one.joined_at,
  };
}
