-- Drops the record of an instance: called by its own process at its end, or by a survivor after the
-- inbox was removed. At its own end the inbox stays listed, because it may contain messages. The
-- record of a later process with the same name is never dropped.
-- KEYS: due
-- ARGV: now_ms, instance, boot ('' by a survivor), beat_at (the last heartbeat known to the
--   survivor)
-- Returns: {OK, 1 | 0 it existed} | {FENCED, 0} another process has it
--   | {NOT_DUE, beat_at} there was a later heartbeat
-- Writes: instances, instance, inboxes
-- Cost: O(log n)
--- @include "includes/cell"

local function instance_forget(ARGV)
  local instance, boot = ARGV[2], ARGV[3]
  local key = BASE .. 'instance:' .. instance
  local dropped = 0
  if boot ~= '' then
    local known = redis.call('HGET', key, 'boot')
    if known and known ~= boot then return { Reply.FENCED, 0 } end
  else
    local beat_at = redis.call('ZSCORE', BASE .. 'instances', instance)
    if beat_at and beat_at ~= ARGV[4] then return { Reply.NOT_DUE, tonumber(beat_at) } end
    dropped = redis.call('SREM', BASE .. 'inboxes', instance)
  end
  dropped = dropped + redis.call('DEL', key) + redis.call('ZREM', BASE .. 'instances', instance)
  return { Reply.OK, dropped > 0 and 1 or 0 }
end
