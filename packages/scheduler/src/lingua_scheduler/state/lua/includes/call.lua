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
-- What several verbs of one batch read alike, as it is now; nil outside of batches, because other
-- calls change it. The verbs of a batch are `job_submit` and `job_settle`, which change leases and
-- waiting jobs alone, by the functions that keep this up to date.
--   nodes: node -> its fields; leased: node -> its unexpired leases; clean: node -> true if it has
--   no expired ones; demands: demand -> its pools; is_none_waiting: no job waits for a node
--   ranked: pool -> its first nodes (`ranks`); timers: timers of jobs, not written yet, of which
--   there are at most timer_count (`job_timers`)
local kept

local function server_time(server_ms)
  local given = tonumber(server_ms)
  if given ~= 0 then return given end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whole numbers and their texts. Lua converts them by `sprintf` and `strtod`, which costs as much
-- as a short command. Small ones, such as indices, positions and counts, are kept, and so are the
-- latest others: the times of the jobs of a batch are the same.
local KEPT_NUMBERS, RECENT_MAX = 8192, 64
local texts, numbers, recent, recent_count = {}, {}, {}, 0

local function text_of(number)
  local text = texts[number] or recent[number]
  if text then return text end
  text = string.format('%.0f', number)
  if number >= 0 and number < KEPT_NUMBERS then
    texts[number] = text
  else
    if recent_count >= RECENT_MAX then recent, recent_count = {}, 0 end
    recent[number], recent_count = text, recent_count + 1
  end
  return text
end

-- The number that a field of the store has; nil if there is none.
local function number_of(text)
  local number = numbers[text]
  if number or not text then return number end
  number = tonumber(text)
  if number and number >= 0 and number < KEPT_NUMBERS and text_of(number) == text then
    numbers[text] = number
  end
  return number
end

-- The decoded specs of jobs by their packed form, from the submit to the settle. They are never
-- changed. Of more jobs at a time the latest are kept.
local SPECS_MAX = 4096
local specs, spec_count = {}, 0

local function spec_of(packed)
  return specs[packed] or cmsgpack.unpack(packed)
end

local function spec_keep(packed, spec)
  if spec_count >= SPECS_MAX then specs, spec_count = {}, 0 end
  if not specs[packed] then spec_count = spec_count + 1 end
  specs[packed] = spec
end

local function spec_drop(packed)
  if specs[packed] then specs[packed], spec_count = nil, spec_count - 1 end
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
