-- The base of every script: the cell, its clock, its key names.
-- KEYS[1] is always the cell's timer set `<prefix>:v1:{cN}:due`; every other key is derived from
-- it, so that all keys of a call share one hash tag. ARGV[1] is the server's time in ms; 0 asks it
-- (tests pass the time). A script's functions are created at every call, so rarely needed ones are
-- nested in the function that needs them.
local DUE = KEYS[1]
local BASE = string.sub(DUE, 1, -4)
local CELL = string.match(DUE, '{(.-)}')
-- The server's own time, for display and for values that must increase.
local wall = tonumber(ARGV[1])
if wall == 0 then
  local time = redis.call('TIME')
  wall = time[1] * 1000 + math.floor(time[2] / 1000)
end
--- @include "includes/clock"
