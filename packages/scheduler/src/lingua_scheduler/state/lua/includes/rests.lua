-- Nodes that did not begin a job, which says nothing about the job: they are excluded for a growing
-- time, not for the job's lifetime. A job's `rests` are `node@until,`; `*` is every node.
--- @include "includes/cell"
local REST_MAX_MS, AT_ONCE_MAX = 2000, 4

local function rest_is_on(till)
  return till > now and till - now <= REST_MAX_MS
end

-- `tried` with every process of the resting nodes, in the form for other cells.
local function left_out(tried, rests)
  for node, till in string.gmatch(rests or '', '([^@,]+)@(%d+)') do
    if rest_is_on(tonumber(till)) then tried = tried .. node .. '@*,' end
  end
  return tried
end

-- When the first of them may be asked again, at the latest `at`.
local function rest_ends(rests, at)
  for till in string.gmatch(rests or '', '@(%d+)') do
    if rest_is_on(tonumber(till)) then at = math.min(at, tonumber(till)) end
  end
  return at
end

-- Adds a node that did not begin it, the `count`th. After a few, no node is asked for half the
-- time.
local function rest_add(rests, node, count)
  local rest_ms = math.min(125 * 2 ^ count, REST_MAX_MS)
  local kept = node .. '@' .. now + rest_ms .. ','
  if count > AT_ONCE_MAX then kept = '*@' .. now + rest_ms / 2 .. ',' .. kept end
  for other, till in string.gmatch(rests or '', '([^@,*]+)@(%d+)') do
    local goes_on = other ~= node and rest_is_on(tonumber(till))
    if goes_on then kept = kept .. other .. '@' .. till .. ',' end
  end
  return kept
end
