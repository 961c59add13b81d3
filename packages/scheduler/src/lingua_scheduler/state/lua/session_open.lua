-- Opens a session; its owner may open it again after a lost answer or if the store has lost it.
-- KEYS: due
-- ARGV: now_ms, session, owner (instance), tenant, lease_ms, fence (0 = a new session), restart
--   (1 = positions start anew: the store lost delivered outcomes), ended ('delivered
--   silent skipped failed' in ms from the owner, '' = nothing), field, value, ...
--   fields: token, about, heard, heard_ms, top, speech, passed (what a later owner needs)
-- Returns: {OPENED, epoch, fence} | {RESUMED, epoch, fence} | {FENCED, 'tenant' | owner}
-- Writes: session, due. A closed session that is opened again gets a new epoch.
-- Cost: O(1)
--- @include "includes/cell"
--- @include "includes/stream"

local function session_open(ARGV)
  local session, owner, tenant = ARGV[2], ARGV[3], ARGV[4]
  local key, fence = SESSION .. session, tonumber(ARGV[6])
  local found = redis.call('HMGET', key, 'epoch', 'owner', 'closed', 'fence', 'tenant')
  local known = tonumber(found[4] or 0)
  if found[1] and found[5] ~= tenant then return { Reply.FENCED, 'tenant' } end
  if fence > 0 and known > fence then return { Reply.FENCED, found[2] } end
  if found[1] and not found[3] then
    if found[2] ~= owner and fence <= known then return { Reply.FENCED, found[2] } end
    local epoch = found[1]
    fence = math.max(fence, known)
    local fields = { 'owner', owner, 'fence', fence }
    local noted = redis.call('HMGET', key, 'top', 'heard')
    stream_fields(fields, noted[1], noted[2], ARGV, 9)
    redis.call('HSET', key, unpack(fields))
    if ARGV[8] ~= '' then
      -- A store that lost writes has lost some of it.
      local sums, at = {}, 1
      for ms in string.gmatch(redis.call('HGET', key, 'ended') or '0 0 0 0', '%d+') do
        sums[#sums + 1] = tonumber(ms)
      end
      for ms in string.gmatch(ARGV[8], '%d+') do
        sums[at] = math.max(sums[at], tonumber(ms))
        at = at + 1
      end
      redis.call('HSET', key, 'ended', table.concat(sums, ' '))
    end
    if ARGV[7] == '1' then
      -- The outcomes in the outbox get new positions; a client recognises known ones by index.
      epoch = string.format('%.0f', math.max(now, wall, epoch + 1))
      redis.call('HSET', key, 'epoch', epoch, 'trimmed', 0,
        'seq', redis.call('LLEN', OUTBOX .. session))
    end
    redis.call('ZADD', DUE, now + ARGV[5], 's|' .. session)
    return { Reply.RESUMED, epoch, fence }
  end
  -- The server's time as well: a restored store has an old cell time.
  local epoch = math.max(now, wall, found[1] and found[1] + 1 or 0)
  -- The owner of the closed session must not count as the owner of this one.
  fence = math.max(fence, fence > 0 and found[2] == owner and known or known + 1)
  redis.call('DEL', key, OUTBOX .. session)
  redis.call('HSET', key, 'epoch', epoch, 'born', epoch, 'owner', owner, 'fence', fence,
    'tenant', tenant, 'seq', 0, 'trimmed', 0, 'opened_at', now, unpack(ARGV, 9))
  if ARGV[8] ~= '' then redis.call('HSET', key, 'ended', ARGV[8]) end
  redis.call('ZADD', DUE, now + ARGV[5], 's|' .. session)
  return { Reply.OPENED, string.format('%.0f', epoch), fence }
end
