-- The index after the unwanted range of `index`, if it is in one.
local function lane_skip(skip, index)
  for from, to in string.gmatch(skip or '', '(%d+):(%d+),') do
    if index >= tonumber(from) and index < tonumber(to) then return tonumber(to) end
  end
  return nil
end
