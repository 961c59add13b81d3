-- An outcome of a speaker in a listener's own outbox: `heard index lane job attempt reason`, a
-- newline, `kind id`. An id is `speaker|epoch|number`, with a prefix '!' if only the kind and the
-- reason exist. The result itself is kept once for all listeners of this cell, in the
-- hash `heard:<id>`: `p` the payload, `t` the same without sound, and a field for each outbox that
-- refers to it. `from:<speaker>` in the listener's session is `epoch:number` of the latest one, so
-- that each arrives once and in order, from whichever instance.
--- @include "includes/cell"
--- @include "includes/heard_place"
--- @include "includes/caption"
local HEARD_FIELDS, HEARD_LISTED_MAX, HEARD_AT_ONCE = 2, 128, 500

-- Computed once for all listeners, because rooms are large.
local function heard_item(id, kind, head, at)
  local mark, speaker, epoch, number = string.match(id, '^(!?)(.+)|(%d+)|(%d+)$')
  return { id = id, is_kept = mark == '', kind = kind, head = head, at = tonumber(at),
    epoch = epoch, number = number, speaker = speaker, from = 'from:' .. speaker,
    entry = 'heard ' .. head .. '\n' .. kind .. ' ' .. id, place = epoch .. ':' .. number,
    place_before = epoch .. ':' .. string.format('%.0f', number - 1) }
end

-- Keeps a result for listeners of this cell. The kept results of a speaker are bounded in bytes:
-- the oldest lose their sound and keep their text.
local function heard_keep(speaker, id, payload, text, policy)
  local list, keep_ms = BASE .. 'said:' .. speaker, 2 * policy.resume_ms
  if redis.call('HSET', BASE .. 'heard:' .. id, 'p', payload, 't', text) > 0 then
    local length = redis.call('RPUSH', list, #payload .. ' ' .. id)
    if length > HEARD_LISTED_MAX then redis.call('LPOP', list) end
    local listed, bytes = redis.call('LRANGE', list, 0, -1), 0
    for i = #listed, 1, -1 do
      local size, of = string.match(listed[i], '^(%d+) (.+)$')
      bytes = bytes + size
      if bytes > policy.kept_bytes_max and i < #listed then
        if redis.call('EXISTS', BASE .. 'heard:' .. of) == 1 then
          redis.call('HSET', BASE .. 'heard:' .. of, 'p', '')
        end
        redis.call('LREM', list, 1, listed[i])
      end
    end
  end
  redis.call('PEXPIRE', BASE .. 'heard:' .. id, keep_ms)
  redis.call('PEXPIRE', list, keep_ms)
end

-- The id of the result that an outbox entry refers to, or nil.
local function heard_of(entry)
  return string.match(entry, '^heard [^\n]*\n%S+ ([^!].*)$')
end

-- `holder` no longer needs a result; it is removed with its last holder.
local function heard_drop(id, holder)
  local key = BASE .. 'heard:' .. id
  redis.call('HDEL', key, holder)
  if redis.call('HLEN', key) == HEARD_FIELDS then redis.call('UNLINK', key) end
end

-- Puts an outcome into one listener's outbox, once. Adds to `rows`: listener, owner, epoch, seq;
-- `heard_note` must follow. Returns false if the session does not exist.
local function hear(name, item, policy, rows)
  if string.byte(name) == 64 then
    caption_put(name, item, policy)
    return true
  end
  local key = SESSION .. name
  local l = redis.call('HMGET', key, 'epoch', 'owner', 'closed', 'seq', 'trimmed', item.from)
  if not l[1] then return false end
  if l[3] or heard_before(l[6], item) then return true end
  local own = l[4] + 1
  redis.call('RPUSH', OUTBOX .. name, item.entry)
  redis.call('HSET', key, 'seq', own, 'hears', 1, item.from, item.place)
  if l[4] - l[5] >= policy.outbox_max then
    -- Its client is disconnected for long: the oldest entry is removed, and a resume reports that.
    local gone = heard_of(redis.call('LPOP', OUTBOX .. name) or '')
    if gone then heard_drop(gone, name) end
    redis.call('HSET', key, 'trimmed', l[5] + 1)
  end
  local at = #rows
  rows[at + 1], rows[at + 2], rows[at + 3], rows[at + 4] = name, l[2], l[1], own
  return true
end

-- The listeners of `rows` have the item: their outboxes refer to it, their owners are informed.
local function heard_note(item, rows, out)
  if #rows == 0 and not item.told then return end
  local holders = {}
  for at = 1, item.is_kept and #rows or 0, 4 do
    holders[#holders + 1], holders[#holders + 2] = rows[at], ''
  end
  for at = 1, #holders, HEARD_AT_ONCE do
    local last = math.min(at + HEARD_AT_ONCE - 1, #holders)
    redis.call('HSET', BASE .. 'heard:' .. item.id, unpack(holders, at, last))
  end
  for _, word in ipairs(item.told or {}) do rows[#rows + 1] = word end
  out.heard = out.heard or {}
  out.heard[#out.heard + 1] = { item.id, item.kind .. ' ' .. item.head, rows }
end
