-- One language of an utterance has ended: readers of the lane `~` get its text, if it has one; the
-- last language without a text ends it for them (see readers_put). `head`: of the outcome.
--- @include "includes/cell"
--- @include "includes/release"
local function readers_end(spec, kind, head, text, policy, out)
  local key, field = SESSION .. spec.session, 'at:~:' .. spec.index
  local put_ms, left = string.match(redis.call('HGET', key, field) or '', '^(%d+)~(%d+)$')
  if not put_ms then return end
  if kind ~= 'completed' and tonumber(left) > 1 then
    redis.call('HSET', key, field, put_ms .. '~' .. (left - 1))
    return
  end
  local place = kind .. ' ' .. spec.index .. ' ~ ' .. head
  local entry = entry_for_others(place, spec.readers, text, text)
  local s = session_read(spec.session, '~', spec.index)
  lane_settle(spec.session, '~', spec.index, s, entry, policy, out)
end
