-- Runs several verbs one after the other, at one time of the cell: what the calls of one turn of an
-- instance's event loop have in common is done once. Each call takes effect completely or not at
-- all, as it does alone; an error of one of them does not concern the others.
-- KEYS: due
-- ARGV: now_ms, policy, then for each call: the verb's name, how many arguments it has after the
--   time and the policy, which are the same for all, and these arguments
-- Returns: [the verb's answer, or an error, for each call]
-- Writes: what the verbs write
-- Cost: that of the verbs
--- @include "includes/cell"
--- @include "includes/ranks"
--- @include "includes/job_timers"

local function nothing_kept()
  return { nodes = {}, leased = {}, clean = {}, demands = {}, is_none_waiting = false, ranked = {},
    timers = {}, timer_count = 0 }
end

-- Writes what the calls so far have changed and left to be written together.
local function write_kept()
  ranks.write()
  job_timers.write()
end

local function batch(ARGV)
  local answers, at, time, policy = {}, 3, ARGV[1], ARGV[2]
  kept = nothing_kept()
  while ARGV[at] do
    local count = tonumber(ARGV[at + 1])
    looked = nil
    local words = { time, policy, unpack(ARGV, at + 2, at + 1 + count) }
    local done, answer = pcall(verbs[ARGV[at]], words)
    -- An error of the server is a table that can be answered; one of Lua is a text.
    if not done then
      if not answer.err then answer = redis.error_reply(answer) end
      write_kept()
      kept = nothing_kept()
    end
    answers[#answers + 1] = answer
    at = at + 2 + count
  end
  write_kept()
  kept = nil
  return answers
end
