-- Gives an outcome to its listeners, which were fixed when the utterance was cut: `cell/session` of
-- each, separated by spaces. Those of this cell get it in the step that releases it, in a large
-- room only the first of them, so that the step stays short. If some are left, are in other cells,
-- or were lost by the store, the outcome stays in the list `relay:<session>` until all have it: any
-- instance may continue (`relay_run`), and the timer `x|<session>` ensures that one does. In the
-- list: `id at_ms kind index lane job attempt reason`, a newline, the audience (in a large room:
-- those who still wait). The speaker is informed (an entry `+kind ...` in its own outbox, with the
-- text) when no listener waits any more; not for transcripts.
--- @include "includes/hear"
--- @include "includes/cell"
local RELAY_MS, ABSENT_MS, LISTED = 1000, 5000, '#'

-- Gives an outcome to its listeners of this cell. `done`: 'cell id' of outcomes that all listeners
-- of another cell have; therefore `held` contains listeners of this cell, and whole other cells
-- that do not have an earlier outcome. `turn.left`: how many listeners may get one in this step.
-- Returns those who wait, those of other cells who may get it now, or nil, and whether the limit
-- ended the step.
local function relay_hear(item, audience, policy, done, held, out, turn)
  local rows, waiting, elsewhere, cells, is_cut = {}, {}, nil, {}, false
  for where, cell, name in string.gmatch(audience, '(([^/ ]+)/([^ ]+))') do
    local waits = false
    if cell ~= CELL then
      if not done[cell .. ' ' .. item.id] then
        waits, cells[cell] = true, true
        if not held['/' .. cell] then
          elsewhere = elsewhere or {}
          elsewhere[#elsewhere + 1] = where
        end
      end
    elseif held[name] then
      waits = true
    elseif #rows >= 4 * turn.left then
      waits, held[name], is_cut = true, true, true
    elseif not hear(name, item, policy, rows) and now - item.at < ABSENT_MS then
      waits, held[name] = true, true
    end
    if waits then waiting[#waiting + 1] = where end
  end
  for cell in pairs(cells) do held['/' .. cell] = true end
  turn.left = turn.left - #rows / 4
  heard_note(item, rows, out)
  return waiting, elsewhere, is_cut
end

-- All listeners have it: the speaker is informed, unless its session has ended and was opened anew
-- since: in the order of that one the same index is another utterance. Returns the position.
local function relay_passed(session, s, item, out)
  local text = ''
  if item.is_kept then
    text = redis.call('HGET', BASE .. 'heard:' .. item.id, 't') or ''
    heard_drop(item.id, LISTED)
  end
  if string.match(item.head, '^%d+ (%S+)') == '~' or s.epoch == '' then return 0 end
  if tonumber(item.epoch) < tonumber(s.born) then return 0 end
  local entry = '+' .. item.kind .. ' ' .. item.head .. '\n' .. text
  s.seq = s.seq + 1
  redis.call('RPUSH', OUTBOX .. session, entry)
  out[#out + 1], out[#out + 2] = s.seq, entry
  return s.seq
end

-- What the caller must give to listeners of other cells.
local function relay_ahead(item, elsewhere)
  local kept = { '', '' }
  if item.is_kept then kept = redis.call('HMGET', BASE .. 'heard:' .. item.id, 'p', 't') end
  return { item.id, item.kind .. ' ' .. item.head, now - item.at, kept[1] or '', kept[2] or '',
    elsewhere }
end

-- Continues with the outcomes that listeners do not have, in order, for a limited number of them;
-- `ahead` collects those for other cells. Returns the speaker's position of the last one, 0 while
-- some wait.
local function relay_walk(session, s, policy, done, out, listeners_max, ahead)
  local list, held, is_first, seq = BASE .. 'relay:' .. session, {}, true, 0
  local turn, place = { left = listeners_max }, 0
  for _, line in ipairs(redis.call('LRANGE', list, 0, -1)) do
    local id, at, kind, head, audience =
      string.match(line, '^(%S+) (%d+) (%S+) ([^\n]+)\n(.*)$')
    local item = heard_item(id, kind, head, at)
    local waiting, elsewhere, is_cut =
      relay_hear(item, audience, policy, done, held, out, turn)
    if #waiting > 0 then
      is_first, seq = false, 0
      if is_cut then
        local told = string.match(line, '^[^\n]+')
        redis.call('LSET', list, place, told .. '\n' .. table.concat(waiting, ' '))
        out.is_cut = true
      end
      place = place + 1
      if ahead and item.is_kept then
        -- As long as a listener waits, also behind another outcome.
        redis.call('PEXPIRE', BASE .. 'heard:' .. item.id, 2 * policy.resume_ms)
      end
      if ahead and elsewhere then ahead[#ahead + 1] = relay_ahead(item, elsewhere) end
    elseif is_first then
      redis.call('LPOP', list)
      seq = relay_passed(session, s, item, out)
    else
      place = place + 1
    end
  end
  if is_first then
    redis.call('ZREM', DUE, 'x|' .. session)
  else
    redis.call('ZADD', DUE, now + RELAY_MS, 'x|' .. session)
    out.is_relaying = true
  end
  return seq
end

-- An outcome for listeners was released. Returns the speaker's position of it, 0 while some wait.
local function relay_begin(session, s, entry, policy, out)
  local kind, head, audience, length, from =
    string.match(entry, '^%+(%S+) ([^\n]*)\n([^\n]*)\n(%d+)\n()')
  local text, payload = string.sub(entry, from, from + length - 1), string.sub(entry, from + length)
  local number = redis.call('HINCRBY', SESSION .. session, 'said', 1)
  local id = (payload == '' and '!' or '') .. session .. '|' .. s.epoch .. '|' .. number
  if payload ~= '' then
    heard_keep(session, id, payload, text, policy)
    redis.call('HSET', BASE .. 'heard:' .. id, LISTED, '')
  end
  redis.call('RPUSH', BASE .. 'relay:' .. session, id .. ' ' .. string.format('%.0f', now) .. ' '
    .. kind .. ' ' .. head .. '\n' .. audience)
  return relay_walk(session, s, policy, {}, out, policy.hear_at_once)
end
