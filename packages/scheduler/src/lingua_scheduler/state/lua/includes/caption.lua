-- The captions of a room in one language, for those who read along and for those who come late. A
-- listener `@<code>|<language>` of an outcome stands for them: so they come once and in order, as
-- to every listener, and nothing else writes them. They are in the room's cell and end with the
-- room, in the hash `captions:<code>|<language>`: `born` names the numbering, `first` and `last`
-- are the numbers of those that are kept, `bytes` is their size, `from:<speaker>` is as in a
-- listener's session, and a field `<number>` for each is [at_ms, speaker, name, index, text].
--- @include "includes/cell"
--- @include "includes/heard_place"

-- The text of a kept result for readers of `lane`: as it was spoken (`~`), or the translation.
local function caption_text(item)
  if item.kind ~= 'completed' or not item.is_kept then return nil end
  local kept = redis.call('HMGET', BASE .. 'heard:' .. item.id, 't', 'p')
  local payload = (kept[1] or '') ~= '' and kept[1] or kept[2]
  if (payload or '') == '' then return nil end
  -- A result (`jobs/result_format.py`) is a list whose head is one byte and whose first two items
  -- are the texts. What cannot be read must not hinder the step that releases the outcome.
  local is_read, _, spoken, translated = pcall(cmsgpack.unpack_limit, string.sub(payload, 2), 2)
  if not is_read or type(spoken) ~= 'string' or type(translated) ~= 'string' then return nil end
  if string.match(item.head, '^%d+ (%S+)') == '~' or translated == '' then return spoken end
  return translated
end

-- Adds one, and removes the oldest beyond the limits. Returns its number and `born`.
local function caption_add(key, c, caption, policy)
  local born = c[1] or string.format('%.0f', wall)
  local first, last = tonumber(c[2] or 1), tonumber(c[3] or 0) + 1
  local bytes = tonumber(c[4] or 0) + #caption
  redis.call('HSET', key, last, caption)
  while last - first >= policy.captions_max or (bytes > policy.caption_bytes_max and first < last)
  do
    bytes = bytes - #redis.call('HGET', key, first)
    redis.call('HDEL', key, first)
    first = first + 1
  end
  redis.call('HSET', key, 'born', born, 'first', first, 'last', last, 'bytes', bytes)
  return last, born
end

-- Writes an outcome into the captions `name`, once; nothing if the room has ended. Adds to
-- `item.told` the instances with readers: name, instance, born, number.
local function caption_put(name, item, policy)
  local code, lang = string.match(name, '^@(%d+)|(.+)$')
  local room, key = BASE .. 'room:' .. code, BASE .. 'captions:' .. code .. '|' .. lang
  local r = redis.call('HMGET', room, 'tenant', 'r:' .. lang, 'm:' .. item.speaker, 'c:' .. lang)
  if not r[1] then return end
  local c = redis.call('HMGET', key, 'born', 'first', 'last', 'bytes', item.from)
  if heard_before(c[5], item) then return end
  redis.call('HSET', key, item.from, item.place)
  if not r[4] then redis.call('HSET', room, 'c:' .. lang, 1) end
  local text = caption_text(item)
  if not text or text == '' then return end
  local index = string.match(item.head, '^%d+')
  local who = string.match(r[3] or '', '\n(.*)$') or ''
  local number, born = caption_add(key, c,
    cmsgpack.pack({ wall - (now - item.at), item.speaker, who, tonumber(index), text }), policy)
  for instance in string.gmatch(r[2] or '', '(%S+) %d+ %d+') do
    item.told = item.told or {}
    local told, at = item.told, #item.told
    told[at + 1], told[at + 2], told[at + 3], told[at + 4] = name, instance, born, number
  end
end
