-- The names of a lane's fields in the session's hash, made once: few languages serve many sessions.
local L_NEXT, L_SKIP, L_AT = 1, 2, 3
local LANES_MAX = 1024
local lane_names_kept, lane_count = {}, 0

-- Returns { `next:<lane>`, `skip:<lane>`, `at:<lane>:` }.
local function lane_names(lane)
  local names = lane_names_kept[lane]
  if names then return names end
  if lane_count >= LANES_MAX then lane_names_kept, lane_count = {}, 0 end
  names = { 'next:' .. lane, 'skip:' .. lane, 'at:' .. lane .. ':' }
  lane_names_kept[lane], lane_count = names, lane_count + 1
  return names
end
