-- Every entry of a lane by index: { index, put_ms, value }. Bounded by the number of entries,
-- not by the distance of indices.

-- Of two lists whose first item is an index.
local function is_before(one, other) return one[1] < other[1] end

local function lane_entries(key, lane)
  local prefix, found = 'at:' .. lane .. ':', {}
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, #prefix) == prefix then
      found[#found + 1] = { tonumber(string.sub(fields[i], #prefix + 1)),
        tonumber(string.match(fields[i + 1], '^=?(%d+)')), fields[i + 1] }
    end
  end
  table.sort(found, is_before)
  return found
end
