-- The account of a session's speech, in whole milliseconds, in its hash: `ended` is 'delivered
-- silent skipped failed', where an utterance counts once, with its best fate; `of:<index>` is '<ms>
-- <languages> <best so far> <language> ...' of an utterance that ended in some languages only. Pure
-- twin: session/ledger.py.

-- The position of a fate in `ended`: of several languages the first position counts.
local function fate_of(kind)
  if kind == 'completed' then return 1 end
  if kind == 'completed_no_text' then return 2 end
  return kind == 'cancelled' and 3 or 4
end

local function ended_with(ended, place, ms)
  local sums = { string.match(ended, '^(%d+) (%d+) (%d+) (%d+)$') }
  sums[place] = sums[place] + ms
  return table.concat(sums, ' ')
end

-- One language of an utterance of `ms` has ended. Returns the new `ended`; the caller writes it
-- with its other fields.
local function account(key, ended, spec, place)
  if (spec.lanes or 1) > 1 then
    local field = 'of:' .. spec.index
    local best, lanes = string.match(redis.call('HGET', key, field) or '', '^%d+ %d+ (%d) (.*)$')
    lanes = lanes or ''
    if string.find(' ' .. lanes, ' ' .. spec.lane .. ' ', 1, true) then return ended end
    lanes, place = lanes .. spec.lane .. ' ', math.min(place, tonumber(best or 4))
    local _, count = string.gsub(lanes, ' ', '')
    if count < spec.lanes then
      redis.call('HSET', key, field, spec.ms .. ' ' .. spec.lanes .. ' ' .. place .. ' ' .. lanes)
      return ended
    end
    redis.call('HDEL', key, field)
  end
  return ended_with(ended, place, spec.ms)
end
