-- Runs several verbs one after the other, at one time of the cell: what the calls of one turn of an
-- instance's event loop have in common is done once. Each call takes effect completely or not at
-- all, as it does alone; an error of one of them does not concern the others.
-- KEYS: due
-- ARGV: now_ms, then for each call: the verb's name, how many arguments it has, its arguments
-- Returns: [the verb's answer, or an error, for each call]
-- Writes: what the verbs write
-- Cost: that of the verbs
--- @include "includes/cell"

local function batch(ARGV)
  local answers, at = {}, 2
  while ARGV[at] do
    local count = tonumber(ARGV[at + 1])
    looked = nil
    local done, answer = pcall(verbs[ARGV[at]], { unpack(ARGV, at + 2, at + 1 + count) })
    -- An error of the server is a table that can be answered; one of Lua is a text.
    if not done and not answer.err then answer = redis.error_reply(answer) end
    answers[#answers + 1] = answer
    at = at + 2 + count
  end
  return answers
end
