"""What must be one step for the server: four scripts in its Lua, each run as a whole.

Owns what asks and acts, or asks twice, at one moment. `KEYS[1]` is the stream and `ARGV[1]` the group.
"""

STANDING = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0, 0} end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local of = {}
  for at = 1, #group, 2 do of[group[at]] = group[at + 1] end
  if of['name'] == ARGV[1] then
    local after = redis.call('XRANGE', KEYS[1], '(' .. of['last-delivered-id'], '+', 'COUNT', ARGV[2])
    local age = 0
    if #after > 0 then
      local now = redis.call('TIME')
      age = now[1] * 1000 + math.floor(now[2] / 1000) - tonumber(string.match(after[1][1], '^%d+'))
    end
    return {#after, of['pending'], age}
  end
end
return {0, 0, 0}
"""
"""Entries behind the last that was delivered to the group, counted up to `ARGV[2]`, those pending, and how many
milliseconds ago the oldest of the first was added, which its id tells.

The server's own `lag` is null after deletes, and wrong after trims before 7.4.2; every acknowledged message is deleted
here. The entries themselves cannot be wrong.
"""

AMEND = """
local function number(id)
  local first, second = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #first) .. first .. string.rep('0', 20 - #second) .. second
end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local stream = redis.call('XINFO', 'STREAM', KEYS[1])
local last = ''
for at = 1, #stream, 2 do
  if stream[at] == 'last-generated-id' then last = number(stream[at + 1]) end
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local of = {}
  for at = 1, #group, 2 do of[group[at]] = group[at + 1] end
  if of['name'] == ARGV[1] and number(of['last-delivered-id']) > last then
    return redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1])
  end
end
return 0
"""
"""Remove a group that somebody has moved past the last entry that there ever was: it would read none of those that are
added until their ids, which are times, come there. Whoever reads makes it anew, and reads them."""

FORGET = """
local forgotten = 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local of = {}
  for at = 1, #consumer, 2 do of[consumer[at]] = consumer[at + 1] end
  local named = ARGV[3] == '' or ARGV[3] == of['name']
  if named and of['pending'] == 0 and of['idle'] >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], of['name'])
    forgotten = forgotten + 1
  end
end
return forgotten
"""
"""Remove consumers that asked for nothing for `ARGV[2]` milliseconds and hold nothing, of the name `ARGV[3]` or any.

Removing a consumer removes what is pending for it, which nobody could take over then: so that it holds nothing is
looked at in the same step.
"""

FINISH = """
local known = 0
for at = 2, #ARGV, 1000 do
  local last = math.min(at + 999, #ARGV)
  known = known + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, at, last))
  redis.call('XDEL', KEYS[1], unpack(ARGV, at, last))
end
return known
"""
"""Acknowledge and delete the entries `ARGV[2]` and on. A message that was acknowledged and stayed in the stream would
never leave it."""
