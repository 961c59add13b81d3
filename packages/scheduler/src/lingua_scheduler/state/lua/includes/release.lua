-- Releases outcomes in order. `seq` is the position of the last one in the outbox.
--- @include "includes/outcome"
--- @include "includes/cell"
--- @include "includes/lane_walk"
--- @include "includes/lane_names"

local function session_read(session, lane, index)
  local names = lane_names(lane)
  local s = redis.call('HMGET', SESSION .. session, 'epoch', 'owner', 'seq', names[L_NEXT],
    names[L_SKIP], names[L_AT] .. text_of(index + 1), 'ended', 'born',
    names[L_AT] .. text_of(index))
  return { session = session, epoch = s[1] or '', owner = s[2] or '', seq = number_of(s[3]) or 0,
    next = number_of(s[4]) or 0, skip = s[5], ahead = s[6], ended = s[7] or '0 0 0 0',
    born = s[8] or '0', put = s[9] }
end

-- Takes `entry`, the outcome of `index`, into the lane; `s` was read for this index. Returns its
-- seq if it is next (0: its listeners get it first), else it waits. The common case (it is next,
-- nothing waits behind it) is one push, one write and one delete.
local function lane_settle(session, lane, index, s, entry, policy, out)
  local key, names = SESSION .. session, lane_names(lane)
  local field = names[L_AT] .. text_of(index)
  if index ~= s.next then
    local put_ms = string.match(s.put or '', '^%d+') or text_of(now)
    redis.call('HSET', key, field, '=' .. put_ms .. ' ' .. entry, 'ended', s.ended)
    return nil
  end
  local own = outcome_out(session, s, entry, policy, out)
  s.next = index + 1
  if s.skip or (s.ahead and string.byte(s.ahead) == 61) then
    local done = { field }
    lane_walk(session, lane, s, policy, out, done)
    redis.call('HDEL', key, unpack(done))
  else
    redis.call('HDEL', key, field)
  end
  redis.call('HSET', key, 'seq', text_of(s.seq), names[L_NEXT], text_of(s.next), 'ended', s.ended)
  return own
end
