-- Places in the order of one speaker's outcomes, by which each is heard once.

-- Tells whether a listener, whose latest outcome of this speaker is `place`, already has the item.
local function heard_before(place, item)
  if not place or place == item.place_before then return false end
  local epoch, number = string.match(place, '^(%d+):(%d+)$')
  local by_epoch = item.epoch - epoch
  return by_epoch < 0 or (by_epoch == 0 and item.number - number <= 0)
end
