-- The base of every verb on a cell: the cell, its clock, its key names. The server's key `due` of
-- the cell, `<prefix>:v1:{cN}:due`, is the only one that a call names; every other key is derived
-- from it, so that all keys of a call share one hash tag. The names below are those of the current
-- call: each call sets them at its start.
--- @include "includes/call"
--- @include "includes/clock"

-- server_ms: the server's time in ms; 0 asks it (tests pass the time).
local function begin_cell(due, server_ms)
  if due ~= DUE then
    DUE, BASE, CELL = due, string.sub(due, 1, -4), string.match(due, '{(.-)}')
  end
  wall = server_time(server_ms)
  now = clock_read(wall)
  looked = nil
end
