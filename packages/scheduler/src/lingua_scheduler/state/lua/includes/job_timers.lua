-- The timers of jobs, `j|<job>` in the cell's timer set: when its holder must have answered, or
-- when it has waited too long. Nothing in a batch reads them, so that they are written together at
-- its end. One table, because a library has a limited number of locals.
--- @include "includes/call"
local job_timers = {}
-- Written earlier, so that a command has a limited number of words.
local TIMERS_MAX = 512

function job_timers.set(job, at)
  local timer = 'j|' .. job
  if not kept then
    redis.call('ZADD', DUE, at, timer)
    return
  end
  if kept.timer_count >= TIMERS_MAX then job_timers.write() end
  kept.timers[timer], kept.timer_count = at, kept.timer_count + 1
end

function job_timers.stop(job)
  local timer = 'j|' .. job
  if not kept then
    redis.call('ZREM', DUE, timer)
    return
  end
  if kept.timer_count >= TIMERS_MAX then job_timers.write() end
  kept.timers[timer], kept.timer_count = false, kept.timer_count + 1
end

-- Writes what the batch has changed so far.
function job_timers.write()
  local set, stopped = {}, {}
  for timer, at in pairs(kept.timers) do
    if at then
      set[#set + 1], set[#set + 2] = at, timer
    else
      stopped[#stopped + 1] = timer
    end
  end
  if set[1] then redis.call('ZADD', DUE, unpack(set)) end
  if stopped[1] then redis.call('ZREM', DUE, unpack(stopped)) end
  kept.timers, kept.timer_count = {}, 0
end
