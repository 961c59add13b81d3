-- What the current call works on; every call sets it at its start.
-- DUE: the timer set of the cell; BASE: the beginning of all its keys; CELL: its name.
local DUE, BASE, CELL
-- The keys of the cell that are used most, and the beginnings of others.
local DEMANDS, WAITING, PENDING
local SESSION, JOB, OUTBOX, NODE, POOL, LEASES
-- The server's own time, for display and for values that must increase; the cell's time, which
-- decides.
local wall, now
-- With `policy.explains`, the nodes that a placement considered: `pool node score`, or `tried` as
-- the score.
local looked

local function server_time(server_ms)
  local given = tonumber(server_ms)
  if given ~= 0 then return given end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The decoded policies by their packed form, which an instance sends with every call. An instance
-- has a few of them, which do not change; of many instances with different settings the latest are
-- kept.
local POLICIES_MAX = 32
local policies, policy_count = {}, 0

local function policy_of(packed)
  local policy = policies[packed]
  if policy then return policy end
  if policy_count >= POLICIES_MAX then policies, policy_count = {}, 0 end
  policy = cmsgpack.unpack(packed)
  policies[packed], policy_count = policy, policy_count + 1
  return policy
end
