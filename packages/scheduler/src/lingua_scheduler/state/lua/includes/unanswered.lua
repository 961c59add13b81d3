-- Tells whether a named request has no answer although its job ended: it was refused because the
-- queue was full or no node serves it, or its session ended first.
local function unanswered(state, outcome, reason)
  if state ~= 'RELEASED' then return false end
  return outcome == 'cancelled'
    or outcome == 'failed' and (reason == 'queue_full' or reason == 'no_pool_for_lang_pair')
end
