-- Drops an instance's record: its own process at its end, or a survivor after the inbox is removed.
-- An end keeps the mention of the inbox, in which there may still be letters. Neither drops the
-- record of a process that came after under the same name.
-- KEYS: due
-- ARGV: now_ms, instance, boot ('' by a survivor), beat_at (the last beat the survivor knows of)
-- Returns: {OK, 1 | 0 anything was there} | {FENCED, 0} another process has it
--   | {NOT_DUE, beat_at} it has beaten since
-- Writes: instances, instance, inboxes
-- Cost: O(log n)
--- @include "includes/cell"
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
