-- Takes, renews or releases the right to read the inbox of a dead instance.
-- KEYS: inbox
-- ARGV: now_ms, who, lease_ms (0 = release)
-- Returns: {OK, who} | {FENCED, the instance that has it}
-- Writes: adopter
-- Cost: O(1)
--- @include "includes/inbox"

local function inbox_lease(ARGV)
  local who, lease_ms = ARGV[2], tonumber(ARGV[3])
  local holder = redis.call('GET', BASE .. 'adopter')
  if holder and holder ~= who then return { Reply.FENCED, holder } end
  if lease_ms > 0 then
    redis.call('SET', BASE .. 'adopter', who, 'PX', lease_ms)
  else
    redis.call('DEL', BASE .. 'adopter')
  end
  return { Reply.OK, who }
end
