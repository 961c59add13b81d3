-- Opens a session, or takes over an open one for another owner.
-- KEYS: due
-- ARGV: now_ms, session, owner (instance), tenant, lease_ms
-- Returns: {OPENED, epoch} | {RESUMED, epoch, previous owner, fence} | {FENCED, 'tenant'}
-- Writes: session, due. A closed session that is opened again starts over under a new epoch.
-- Cost: O(1)
--- @include "includes/cell"
local session, owner, tenant = ARGV[2], ARGV[3], ARGV[4]
local key = BASE .. 'session:' .. session
local found = redis.call('HMGET', key, 'epoch', 'owner', 'closed', 'fence', 'tenant')
if found[1] and not found[3] then
  if found[5] ~= tenant then return { Reply.FENCED, 'tenant' } end
  local fence = found[4] + 1
  redis.call('HSET', key, 'owner', owner, 'fence', fence)
  redis.call('ZADD', DUE, now + ARGV[5], 's|' .. session)
  return { Reply.RESUMED, found[1], found[2], fence }
end
local epoch = found[1] and math.max(now, found[1] + 1) or now
redis.call('DEL', key, BASE .. 'outbox:' .. session)
redis.call('HSET', key, 'epoch', epoch, 'owner', owner, 'fence', 1, 'tenant', tenant,
  'seq', 0, 'trimmed', 0, 'opened_at', now)
redis.call('ZADD', DUE, now + ARGV[5], 's|' .. session)
return { Reply.OPENED, string.format('%.0f', epoch) }
