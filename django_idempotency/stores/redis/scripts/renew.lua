-- Let the lease of a running record begin anew, if it is still its owner's. ARGV: owner token, lease in microseconds.
-- Many are sent together, and an error of one would be theirs all: what is no record of ours is not renewed.
local old = redis.pcall('GET', KEYS[1])
if type(old) ~= 'string' or string.sub(old, 74, 90) ~= '\1' .. ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lease_until = now + ARGV[2]
local purge_at = struct.unpack('>d', string.sub(old, 65, 72))
-- Beyond the year 9999, or not a number (which is not even less): it reads as absent.
if not (purge_at < 253402300800000000) then return 0 end
local value = string.sub(old, 1, 32) .. struct.pack('>d', lease_until) .. string.sub(old, 41)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((math.max(lease_until, purge_at) - now) / 1000), 1))
return 1
