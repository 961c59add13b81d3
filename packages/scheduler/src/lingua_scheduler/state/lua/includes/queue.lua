-- Jobs that wait for a node: earliest deadline first within a demand, demands by their earliest
-- deadline, and one set of all for the bound. Bounded in jobs and in distinct demands. Jobs of one
-- millisecond are ordered by utterance index, as the fraction: slices must arrive in order.
--- @include "includes/cell"
local WAITING_DEMANDS_MAX = 256

local function queue_full(demand, jobs_max)
  if redis.call('ZCARD', PENDING) >= jobs_max then return true end
  return redis.call('ZCARD', WAITING) >= WAITING_DEMANDS_MAX
    and not redis.call('ZSCORE', WAITING, demand)
end

local function queue_add(job, spec, deadline)
  if kept then kept.is_none_waiting = false end
  local place = deadline + spec.index % 4096 / 4096
  redis.call('ZADD', PENDING, deadline, job)
  redis.call('ZADD', BASE .. 'queue:' .. spec.demand, place, job)
  redis.call('ZADD', WAITING, 'LT', place, spec.demand)
end

local function queue_remove(job, demand)
  if redis.call('ZREM', PENDING, job) == 0 then return end
  local queue = BASE .. 'queue:' .. demand
  redis.call('ZREM', queue, job)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if first[1] then
    redis.call('ZADD', WAITING, first[2], demand)
  else
    redis.call('ZREM', WAITING, demand)
  end
end
