-- The base of every verb on a cell: the cell, its clock, its key names. The server's key `due` of
-- the cell, `<prefix>:v1:{cN}:due`, is the only one that a call names; every other key is derived
-- from it, so that all keys of a call share one hash tag.
--- @include "includes/call"
--- @include "includes/clock"

local function enter_cell(due)
  if due == DUE then return end
  DUE, BASE, CELL = due, string.sub(due, 1, -4), string.match(due, '{(.-)}')
  DEMANDS, WAITING, PENDING = BASE .. 'demands', BASE .. 'waiting', BASE .. 'pending'
  SESSION, JOB, OUTBOX = BASE .. 'session:', BASE .. 'job:', BASE .. 'outbox:'
  NODE, POOL, LEASES = BASE .. 'node:', BASE .. 'pool:', BASE .. 'leases:'
end

-- server_ms: the server's time in ms; 0 asks it (tests pass the time).
local function begin_cell(due, server_ms)
  enter_cell(due)
  wall = server_time(server_ms)
  now = clock_read(wall)
  looked, kept = nil, nil
end

-- The same for verbs that need a session or a job of the cell, and are called most: the clock's
-- key is read only when its mark in memory is old. A store that was emptied has no session until a
-- verb that reads the clock opens one.
local function begin_known(due, server_ms)
  enter_cell(due)
  wall = server_time(server_ms)
  now = clock_kept(wall) or clock_read(wall)
  looked, kept = nil, nil
end
