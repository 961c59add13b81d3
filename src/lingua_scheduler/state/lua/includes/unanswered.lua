-- Is a request that its client named still without an answer, although its job ended? It was
-- refused because the queue was full or nobody serves it, or its session ended before it did.
local function unanswered(state, outcome, reason)
  if state ~= 'RELEASED' then return false end
  return outcome == 'cancelled'
    or outcome == 'failed' and (reason == 'queue_full' or reason == 'no_pool_for_lang_pair')
end
