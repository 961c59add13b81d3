-- Renews the leases of many sessions of one cell.
-- KEYS: due
-- ARGV: now_ms, lease_ms, owner, session...
-- Returns: {OK, [session that has another owner ...]}
-- Writes: due
-- Cost: O(sessions * log n); callers send at most 500 per call
--- @include "includes/cell"

local function session_renew(ARGV)
  local lost = {}
  for i = 4, #ARGV do
    local found = redis.call('HMGET', SESSION .. ARGV[i], 'owner', 'closed')
    if found[1] == ARGV[3] and not found[2] then
      redis.call('ZADD', DUE, now + tonumber(ARGV[2]), 's|' .. ARGV[i])
    else
      lost[#lost + 1] = ARGV[i]
    end
  end
  return { Reply.OK, lost }
end
