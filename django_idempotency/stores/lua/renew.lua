-- Let the lease of a running record begin anew, if it is still its owner's. ARGV: owner token, lease in microseconds.
local old = redis.call('GET', KEYS[1])
if not old or string.sub(old, 34, 50) ~= '\1' .. ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lease_until = now + ARGV[2]
local expires_at = struct.unpack('>d', string.sub(old, 71, 78))
local value = string.sub(old, 1, 54) .. struct.pack('>d', lease_until) .. string.sub(old, 63)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((math.max(lease_until, expires_at) - now) / 1000), 1))
return 1
