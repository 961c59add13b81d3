-- Records the heartbeat and the fields of an instance; returns all known instances, and the inboxes
-- without an instance. The start by the server's clock is written once per process, even if the
-- store loses it in between.
-- KEYS: due
-- ARGV: now_ms, instance ('' = only read), boot, started_at (0: since now), field, value ...
-- Returns: {OK, now, 1 | 0 this process was already known, [[instance, beat_at, [field, value ...]]
--   ...], [instance that has an inbox and no record ...], the server's time}
-- Writes: instances, instance, inboxes
-- Cost: O(instances)
--- @include "includes/cell"

local function instance_beat(ARGV)
  local instance, boot, was_known = ARGV[2], ARGV[3], 0
  if instance ~= '' then
    local key = BASE .. 'instance:' .. instance
    local known = redis.call('HMGET', key, 'boot', 'started_at')
    local started_at = tonumber(ARGV[4])
    if known[1] == boot then
      was_known = 1
      started_at = known[2]
    elseif started_at == 0 then
      started_at = wall
    end
    redis.call('HSET', key, 'boot', boot, 'started_at', started_at, unpack(ARGV, 5))
    redis.call('ZADD', BASE .. 'instances', now, instance)
    redis.call('SADD', BASE .. 'inboxes', instance)
  end
  local rows, listed = {}, {}
  local beats = redis.call('ZRANGE', BASE .. 'instances', 0, -1, 'WITHSCORES')
  for at = 1, #beats, 2 do
    local about = redis.call('HGETALL', BASE .. 'instance:' .. beats[at])
    rows[#rows + 1] = { beats[at], tonumber(beats[at + 1]), about }
    listed[beats[at]] = true
  end
  local orphans = {}
  for _, name in ipairs(redis.call('SMEMBERS', BASE .. 'inboxes')) do
    if not listed[name] then orphans[#orphans + 1] = name end
  end
  return { Reply.OK, now, was_known, rows, orphans, wall }
end
