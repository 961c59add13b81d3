-- What somebody else said, in a listener's own outbox: `heard index lane job attempt reason`, a
-- newline, `kind id`. An id is `speaker|epoch|number`, with '!' before it if there is nothing but
-- the kind and the reason. The result itself is kept once for all listeners of this cell, in the
-- hash `heard:<id>`: `p` the payload, `t` the same without sound, and a field for each outbox that
-- refers to it. `from:<speaker>` in the listener's session is `epoch:number` of the latest one, so
-- that each comes once and in order, whoever brings it.
local HEARD_FIELDS, HEARD_LISTED_MAX = 2, 128

local function heard_item(id, kind, head, at)
  local mark, speaker, epoch, number = string.match(id, '^(!?)(.+)|(%d+)|(%d+)$')
  return { id = id, is_kept = mark == '', kind = kind, head = head, at = tonumber(at),
    speaker = speaker, epoch = epoch, number = number }
end

-- Keeps a result for listeners of this cell. What a speaker's listeners have not fetched is bounded
-- in bytes: the oldest lose their sound and keep their text.
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

-- The id of a result that an entry of an outbox refers to, nil if there is none.
local function heard_of(entry)
  return string.match(entry, '^heard [^\n]*\n%S+ ([^!].*)$')
end

-- `holder` needs a result no longer; it goes with the last one.
local function heard_drop(id, holder)
  local key = BASE .. 'heard:' .. id
  redis.call('HDEL', key, holder)
  if redis.call('HLEN', key) == HEARD_FIELDS then redis.call('UNLINK', key) end
end

-- Puts an outcome into one listener's outbox, once. Adds to `rows`: listener, owner, epoch, seq.
-- Returns false if there is no such session.
local function hear(name, item, policy, rows)
  local key, from = BASE .. 'session:' .. name, 'from:' .. item.speaker
  local l = redis.call('HMGET', key, 'epoch', 'owner', 'closed', 'seq', 'trimmed', from)
  if not l[1] then return false end
  if l[3] then return true end
  local epoch, number = string.match(l[6] or '', '^(%d+):(%d+)$')
  if epoch then
    local by_epoch = item.epoch - epoch
    if by_epoch < 0 or (by_epoch == 0 and item.number - number <= 0) then return true end
  end
  local own = l[4] + 1
  redis.call('RPUSH', BASE .. 'outbox:' .. name,
    'heard ' .. item.head .. '\n' .. item.kind .. ' ' .. item.id)
  redis.call('HSET', key, 'seq', own, 'hears', 1, from, item.epoch .. ':' .. item.number)
  if l[4] - l[5] >= policy.outbox_max then
    -- Its client is away for long: the oldest goes, and the client is told that when it is back.
    local gone = heard_of(redis.call('LPOP', BASE .. 'outbox:' .. name) or '')
    if gone then heard_drop(gone, name) end
    redis.call('HSET', key, 'trimmed', l[5] + 1)
  end
  if item.is_kept then redis.call('HSET', BASE .. 'heard:' .. item.id, name, '') end
  local at = #rows
  rows[at + 1], rows[at + 2], rows[at + 3], rows[at + 4] = name, l[2], l[1], own
  return true
end

local function heard_note(item, rows, out)
  if #rows == 0 then return end
  out.heard = out.heard or {}
  out.heard[#out.heard + 1] = { item.id, item.kind .. ' ' .. item.head, rows }
end
