-- The filters that decide whether a pool serves a demand, in their order. Twin: jobs/placement.py.

local function demand_rules()
  local rules = { reasons = {
    'lang_pair_unsupported', 'tts_lang_unsupported', 'model_not_available',
    'feature_unsupported', 'not_in_public_pool', 'not_in_pinned_pool',
  } }

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

  function rules.parts(demand)
    local parts = {}
    for part in string.gmatch(demand .. '|', '(.-)|') do parts[#parts + 1] = part end
    return parts
  end

  -- Returns nil when the pool serves the demand, else the number of the filter that removed it.
  function rules.refuses(can, want, paired)
    for direction in string.gmatch(want[1], '[^,]+') do
      local source, target = string.match(direction, '^(.-)>(.*)$')
      if not serves_direction(can, source, target) then return 1 end
    end
    if can.tts and not speaks_all(set_of(can.tts), want[4]) then return 2 end
    if not has_all(set_of(can.services), want[2]) then return 3 end
    if not has_all(set_of(can.features), want[3]) then return 4 end
    if paired then return nil end
    if can.owner ~= '' and can.owner ~= want[5] then return 5 end
    if not has_all(set_of(can.labels or {}), want[6]) then return 6 end
    return nil
  end

  return rules
end
