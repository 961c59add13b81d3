-- Releasing outcomes in order into the outbox. `seq` is the position of the last one released.

local function session_read(session, lane, index)
  local s = redis.call('HMGET', BASE .. 'session:' .. session, 'epoch', 'owner', 'seq',
    'next:' .. lane, 'skip:' .. lane, 'at:' .. lane .. ':' .. (index + 1))
  return { session = session, epoch = s[1] or '', owner = s[2] or '', seq = tonumber(s[3] or 0),
    next = tonumber(s[4] or 0), skip = s[5], ahead = s[6] }
end

-- Takes `entry`, the outcome of `index`, into the lane. Returns its seq if its turn has come, else
-- it waits. The common case (it is next, nothing waits behind it) is one push, one write and one
-- delete.
local function lane_settle(session, lane, index, s, entry, binding_ms, out)
  local key, field = BASE .. 'session:' .. session, 'at:' .. lane .. ':' .. index
  if index ~= s.next then
    local put_ms = string.match(redis.call('HGET', key, field) or '', '^%d+') or now
    redis.call('HSET', key, field, '=' .. put_ms .. ' ' .. entry)
    return nil
  end
  local own = s.seq + 1
  redis.call('RPUSH', BASE .. 'outbox:' .. session, entry)
  out[#out + 1], out[#out + 2] = own, entry
  s.seq, s.next = own, index + 1
  if s.skip or (s.ahead and string.byte(s.ahead) == 61) then
    --- @include "includes/lane_walk"
    local done = {}
    lane_walk(session, lane, s, binding_ms, out, done)
    if #done > 0 then redis.call('HDEL', key, unpack(done)) end
  end
  redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next)
  redis.call('HDEL', key, field)
  return own
end
