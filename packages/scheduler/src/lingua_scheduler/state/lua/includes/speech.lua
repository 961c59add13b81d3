-- The account of a session's speech: `ended` (account.lua), `passed` ('<ms> <of these in the
-- stream>' of utterances that needed no job for their listeners), `speech` (ms of the stream that
-- became jobs), `heard_ms` (the end of the last of these in the stream) and `silent` (ms of silence
-- in the stream; only after its owner has closed the session, until then it follows from the
-- client's position).
--- @include "includes/account"

local function speech_of(key)
  local f = redis.call('HMGET', key, 'ended', 'passed', 'speech', 'heard_ms', 'silent')
  return { f[1] or '0 0 0 0', f[2] or '0 0', tonumber(f[3] or 0), tonumber(f[4] or 0),
    tonumber(f[5] or -1) }
end

-- The same at the session's end: an utterance that ended in some languages only has their best
-- fate.
local function speech_ended(key)
  local ended, done = redis.call('HGET', key, 'ended') or '0 0 0 0', {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 3) == 'of:' then
      local ms, best = string.match(redis.call('HGET', key, field), '^(%d+) %d+ (%d)')
      ended = ended_with(ended, tonumber(best), ms)
      done[#done + 1] = field
    end
  end
  if #done > 0 then
    redis.call('HDEL', key, unpack(done))
    redis.call('HSET', key, 'ended', ended)
  end
  return speech_of(key)
end
