-- Puts an outcome of a speaker of another cell into the outboxes of its listeners in this cell,
-- each once and in order; the result is kept once for all of them.
-- KEYS: due
-- ARGV: now_ms, policy, id, kind, head, payload, text, listener...
-- Returns: {OK, outcomes, [listener whose session is missing ...]}
-- Writes: outbox and session of each listener, heard, said
-- Cost: O(listeners + results kept)
--- @include "includes/cell"
--- @include "includes/outcome"
--- @include "includes/hear"

local function outbox_put(ARGV)
  local policy, item = policy_of(ARGV[2]), heard_item(ARGV[3], ARGV[4], ARGV[5], now)
  local rows, out, absent = {}, {}, {}
  if item.is_kept then heard_keep(item.speaker, item.id, ARGV[6], ARGV[7], policy) end
  for i = 8, #ARGV do
    if not hear(ARGV[i], item, policy, rows) then absent[#absent + 1] = ARGV[i] end
  end
  heard_note(item, rows, out)
  if item.is_kept then heard_drop(item.id, '') end
  return { Reply.OK, outcomes_of(out), absent }
end
