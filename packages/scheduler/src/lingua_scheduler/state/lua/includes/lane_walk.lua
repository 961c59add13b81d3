-- Releases the outcomes that wait directly behind an index.
--- @include "includes/lane_skip"
--- @include "includes/outcome"
--- @include "includes/cell"

local function job_released(job, seq, policy)
  local key = JOB .. job
  redis.call('HSET', key, 'state', 'RELEASED', 'seq', seq)
  redis.call('PEXPIRE', key, policy.binding_ms)
end

-- Releases from s.next on. `done` collects the fields to drop.
local function lane_walk(session, lane, s, policy, out, done)
  local key, prefix, skip = SESSION .. session, 'at:' .. lane .. ':', s.skip
  while true do
    local field = prefix .. s.next
    local value = redis.call('HGET', key, field)
    if value and string.byte(value) == 61 then
      local entry = string.match(value, '^=%d+ (.*)$')
      local seq = outcome_out(session, s, entry, policy, out)
      -- The outcome of its own job, of none ('-'), or of another session's job ('='). A transcript
      -- is not the job's own outcome.
      local mark, job = string.match(entry, '^%S+ %d+ %S+ ([-=]?)(%S*)')
      if mark == '' and lane ~= '~' then
        job_released(job, seq, policy)
      elseif mark == '=' then
        redis.call('HSET', key, 'told:' .. job, s.next .. ' ' .. seq)
      end
      done[#done + 1] = field
      s.next = s.next + 1
    else
      local after = not value and lane_skip(skip, s.next)
      if not after then break end
      skip = string.gsub(skip, '%d+:' .. after .. ',', '', 1)
      s.next = after
    end
  end
  if skip ~= s.skip then
    if skip == '' then
      done[#done + 1] = 'skip:' .. lane
    else
      redis.call('HSET', key, 'skip:' .. lane, skip)
    end
  end
end
