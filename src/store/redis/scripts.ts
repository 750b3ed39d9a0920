/**
 * The Lua script of the shared store: the operations of one turn of the event loop, in the order they came. Each touches one key,
 * so a Cluster runs them one by one on whatever node holds the key.
 *
 * An id's value is `p <token> <fingerprint>` while it is being processed and `h <fingerprint>` once it is handled; the key's own
 * expiry is the lease or the retention. A count of attempts is a number, and its expiry the end of its window or ban.
 *
 * KEYS[i]          the key of operation i
 * ARGV[4i-3 … 4i]  its name and arguments; times in ms
 * RETURNS          for each operation: what its function says, or { -1, error }: one that fails takes no other with it
 */
export const OPERATE = `
local operations = {}

-- 1: claimed for the token; else { value, remaining ms }
function operations.claim(key, token, fingerprint, lease)
  local value = redis.call('GET', key)
  if value then return { value, redis.call('PTTL', key) } end
  redis.call('SET', key, 'p ' .. token .. ' ' .. fingerprint, 'PX', lease)
  return 1
end

-- 1: handled from now on (the token held the claim, or nobody did); 0: the claim is someone else's, nothing changed
function operations.confirm(key, token, fingerprint, retention)
  local value = redis.call('GET', key)
  if value and string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  redis.call('SET', key, 'h ' .. fingerprint, 'PX', retention)
  return 1
end

-- 1: forgotten; 0: the token does not hold the claim, nothing changed
function operations.release(key, token)
  local value = redis.call('GET', key)
  if not value or string.find(value, 'p ' .. token .. ' ', 1, true) ~= 1 then return 0 end
  redis.call('DEL', key)
  return 1
end

-- 0: an attempt was left, and is taken; else how long none is
function operations.attempt(key, failures, per, ban)
  local count = tonumber(redis.call('GET', key) or '0')
  if count >= tonumber(failures) then return redis.call('PTTL', key) end
  count = redis.call('INCR', key)
  if count >= tonumber(failures) then redis.call('PEXPIRE', key, ban)
  elseif count == 1 then redis.call('PEXPIRE', key, per) end
  return 0
end

-- 0: an attempt is given back, if there is one
function operations.refund(key, failures, per)
  local count = tonumber(redis.call('GET', key) or '0')
  if count == 0 then return 0 end
  redis.call('DECR', key)
  if count == tonumber(failures) then redis.call('PEXPIRE', key, per) end
  return 0
end

local replies = {}
for i, key in ipairs(KEYS) do
  local at = 4 * i
  local ok, reply = pcall(operations[ARGV[at - 3]], key, ARGV[at - 2], ARGV[at - 1], ARGV[at])
  if not ok then reply = { -1, type(reply) == 'table' and reply.err or tostring(reply) } end
  replies[i] = reply
end
return replies
`;
