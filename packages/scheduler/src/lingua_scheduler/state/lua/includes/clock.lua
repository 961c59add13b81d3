-- The cell's own time, `now`, which all decisions in the cell use: the server's time without its
-- steps. The key `clock` is '<the server's time at the last write, 13 digits> <offset>'. Every
-- instance calls every cell several times a second. If the server's time is far from the last known
-- one, its clock was set, another server took over, or no instance was running. That is not silence
-- of a node or session, so it counts as KEEP_MS. Thus time does not jump forward, and does not go
-- back except for steps below 2 * KEEP_MS. Written at most every KEEP_MS.
-- Twin: tests/model/clock.py.
--- @include "includes/call"
local KEEP_MS, LEAP_MS = 250, 3000
-- The content of the key when it was last read or written, by cell: the server's time, the offset.
local MARKS_MAX = 256
local marks, offsets, mark_count = {}, {}, 0

local function clock_note(mark, offset)
  if not marks[DUE] then
    if mark_count >= MARKS_MAX then marks, offsets, mark_count = {}, {}, 0 end
    mark_count = mark_count + 1
  end
  marks[DUE], offsets[DUE] = mark, offset
end

-- The cell's time if the key need not be written yet, as far as is known here; else nil.
local function clock_kept(server_ms)
  local mark = marks[DUE]
  if not mark then return nil end
  local passed = server_ms - mark
  if passed > KEEP_MS or passed < -KEEP_MS then return nil end
  return server_ms + offsets[DUE]
end

local function clock_read(server_ms)
  local kept = redis.call('GET', BASE .. 'clock')
  local mark, passed, offset = server_ms, 0, 0
  if kept then
    mark, offset = tonumber(string.sub(kept, 1, 13)), tonumber(string.sub(kept, 15))
    passed = server_ms - mark
  end
  if not kept or passed > KEEP_MS or passed < -KEEP_MS then
    if passed > LEAP_MS or passed < 0 then offset = offset + KEEP_MS - passed end
    mark = server_ms
    redis.call('SET', BASE .. 'clock', string.format('%013.0f %.0f', mark, offset))
  end
  clock_note(mark, offset)
  return server_ms + offset
end
