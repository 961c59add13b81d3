-- Releases outcomes in order. `seq` is the position of the last one in the outbox.
--- @include "includes/outcome"
--- @include "includes/cell"
--- @include "includes/lane_walk"

local function session_read(session, lane, index)
  local s = redis.call('HMGET', BASE .. 'session:' .. session, 'epoch', 'owner', 'seq',
    'next:' .. lane, 'skip:' .. lane, 'at:' .. lane .. ':' .. (index + 1),
    'ended')
  return { session = session, epoch = s[1] or '', owner = s[2] or '', seq = tonumber(s[3] or 0),
    next = tonumber(s[4] or 0), skip = s[5], ahead = s[6], ended = s[7] or '0 0 0 0' }
end

-- Takes `entry`, the outcome of `index`, into the lane. Returns its seq if it is next (0: its
-- listeners get it first), else it waits. The common case (it is next, nothing waits behind it) is
-- one push, one write and one delete.
local function lane_settle(session, lane, index, s, entry, policy, out)
  local key, field = BASE .. 'session:' .. session, 'at:' .. lane .. ':' .. index
  if index ~= s.next then
    local put_ms = string.match(redis.call('HGET', key, field) or '', '^%d+') or now
    redis.call('HSET', key, field, '=' .. put_ms .. ' ' .. entry, 'ended', s.ended)
    return nil
  end
  local own = outcome_out(session, s, entry, policy, out)
  s.next = index + 1
  if s.skip or (s.ahead and string.byte(s.ahead) == 61) then
    local done = {}
    lane_walk(session, lane, s, policy, out, done)
    if #done > 0 then redis.call('HDEL', key, unpack(done)) end
  end
  redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next, 'ended', s.ended)
  redis.call('HDEL', key, field)
  return own
end
