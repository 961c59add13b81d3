-- The cell's own time, `now`, which all decisions in the cell use: the server's time without its
-- steps. The key `clock` is '<the server's time at the last write, 13 digits> <offset>'. Every
-- instance calls every cell several times a second. If the server's time is far from the last known
-- one, its clock was set, another server took over, or no instance was running. That is not silence
-- of a node or session, so it counts as KEEP_MS. Thus time does not jump forward, and does not go
-- back except for steps below 2 * KEEP_MS. Written at most every KEEP_MS.
-- Twin: tests/model/clock.py.
--- @include "includes/call"
local KEEP_MS, LEAP_MS = 250, 3000

local function clock_read(server_ms)
  local kept = redis.call('GET', BASE .. 'clock')
  local passed, offset = 0, 0
  if kept then passed, offset = server_ms - string.sub(kept, 1, 13), string.sub(kept, 15) + 0 end
  if not kept or passed > KEEP_MS or passed < -KEEP_MS then
    if passed > LEAP_MS or passed < 0 then offset = offset + KEEP_MS - passed end
    redis.call('SET', BASE .. 'clock', string.format('%013.0f %.0f', server_ms, offset))
  end
  return server_ms + offset
end
