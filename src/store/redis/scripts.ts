/**
 * The Lua scripts of the shared store. Each touches one key, so each runs on whatever Cluster node holds it.
 *
 * A value is `p <token> <fingerprint>` while it is being processed and `h <fingerprint>` once it is handled;
 * the key's own expiry is the lease or the retention.
 */

/**
 * KEYS[1]  the id's key
 * ARGV[1]  token   ARGV[2]  fingerprint   ARGV[3]  lease in ms
 * RETURNS  false: claimed for the token; else { value, remaining ms }
 */
export const CLAIM = `
local value = redis.call('GET', KEYS[1])
if value then return { value, redis.call('PTTL', KEYS[1]) } end
redis.call('SET', KEYS[1], 'p ' .. ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return false
`;

/**
 * KEYS[1]  the id's key
 * ARGV[1]  token   ARGV[2]  fingerprint   ARGV[3]  retention in ms
 * RETURNS  1: handled from now on (the token held the claim, or nobody did); 0: the claim is someone else's, nothing changed
 */
export const CONFIRM = `
local value = redis.call('GET', KEYS[1])
if value and string.find(value, 'p ' .. ARGV[1] .. ' ', 1, true) ~= 1 then return 0 end
redis.call('SET', KEYS[1], 'h ' .. ARGV[2], 'PX', ARGV[3])
return 1
`;

/**
 * KEYS[1]  the id's key
 * ARGV[1]  token
 * RETURNS  1: forgotten; 0: the token does not hold the claim, nothing changed
 */
export const RELEASE = `
local value = redis.call('GET', KEYS[1])
if not value or string.find(value, 'p ' .. ARGV[1] .. ' ', 1, true) ~= 1 then return 0 end
redis.call('DEL', KEYS[1])
return 1
`;
