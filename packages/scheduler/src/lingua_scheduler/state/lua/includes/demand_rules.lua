-- The filters that decide whether a pool serves a demand, in their order. Twin: jobs/placement.py.
-- The reasons, by the number of the filter.
local REFUSED_AS = {
  'lang_pair_unsupported', 'tts_lang_unsupported', 'model_not_available',
  'feature_unsupported', 'not_in_public_pool', 'not_in_pinned_pool',
}
-- The places of a demand's parts.
local D_DIRECTIONS, D_SERVICES, D_FEATURES, D_SPEECH = 1, 2, 3, 4
local D_TENANT, D_LABELS, D_PAIRED = 5, 6, 7

local function demand_parts(demand)
  local parts = {}
  for part in string.gmatch(demand .. '|', '(.-)|') do parts[#parts + 1] = part end
  return parts
end

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local function has_all(set, wanted)
  for item in string.gmatch(wanted, '[^,]+') do
    if not set[item] then return false end
  end
  return true
end

-- `en` includes `en-us`.
local function understands(set, language)
  return set[language] or set[string.match(language, '^[^-]+')] or false
end

local function speaks_all(set, wanted)
  for language in string.gmatch(wanted, '[^,]+') do
    if not understands(set, language) then return false end
  end
  return true
end

local function serves_direction(can, source, target)
  if can.any then return true end
  if can.pairs then
    for _, pair in ipairs(can.pairs) do
      local from, to = string.match(pair, '^(.-)>(.*)$')
      if (source == '*' or understands({ [from] = true }, source))
        and (target == '' or understands({ [to] = true }, target)) then
        return true
      end
    end
    return false
  end
  if source ~= '*' and can.src and not understands(set_of(can.src), source) then return false end
  return target == '' or not can.tgt or understands(set_of(can.tgt), target)
end

-- Returns nil when the pool serves the demand, else the number of the filter that removed it.
local function demand_refuses(can, want, paired)
  for direction in string.gmatch(want[D_DIRECTIONS], '[^,]+') do
    local source, target = string.match(direction, '^(.-)>(.*)$')
    if not serves_direction(can, source, target) then return 1 end
  end
  if can.tts and not speaks_all(set_of(can.tts), want[D_SPEECH]) then return 2 end
  if not has_all(set_of(can.services), want[D_SERVICES]) then return 3 end
  if not has_all(set_of(can.features), want[D_FEATURES]) then return 4 end
  if paired then return nil end
  if can.owner ~= '' and can.owner ~= want[D_TENANT] then return 5 end
  if not has_all(set_of(can.labels or {}), want[D_LABELS]) then return 6 end
  return nil
end
