-- The cell's own time, `now`, by which everything in the cell is decided: the server's, less its
-- steps. The key `clock` is '<the server's time when it was written, 13 digits> <offset>'. Every
-- cell is looked at several times a second by every instance. When the server's time is far from
-- where it was at the last look, its clock was set, another server took over, or nobody was there
-- to renew anything: that is not time in which anybody was silent, and counts as KEEP_MS. So time
-- does not leap; nor go back, but for steps below 2 * KEEP_MS. Written at most every KEEP_MS.
-- Twin: tests/model/clock.py.
local now = wall
do
  local KEEP_MS, LEAP_MS = 250, 3000
  local kept = redis.call('GET', BASE .. 'clock')
  local passed, offset = 0, 0
  if kept then passed, offset = wall - string.sub(kept, 1, 13), string.sub(kept, 15) + 0 end
  if not kept or passed > KEEP_MS or passed < -KEEP_MS then
    if passed > LEAP_MS or passed < 0 then offset = offset + KEEP_MS - passed end
    redis.call('SET', BASE .. 'clock', string.format('%013.0f %.0f', wall, offset))
  end
  now = wall + offset
end
