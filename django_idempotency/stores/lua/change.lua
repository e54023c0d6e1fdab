-- Take or settle a record, if it is still as it was seen. Answer with the clock and the new value, or nothing.
-- ARGV: what was seen (an owner token, or a whole head), seal, head, digest, outcome, then what may be '' to stay as it
-- is: life, lease and retention in microseconds; then whether it completes the record ('1' or '').
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local old = redis.call('GET', KEYS[1])
local seen = old and (#ARGV[1] == 16 and string.sub(old, 35, 50) or string.sub(old, 33, 54))
if seen ~= ARGV[1] then return {string.format('%.0f', now), false} end

local lease_until, completed_at, expires_at = struct.unpack('>ddd', string.sub(old, 55, 78))
local created, life = string.sub(old, 112, 119), ARGV[6]
if life == '' then
    life = string.sub(old, 120, 121 + struct.unpack('>I2', string.sub(old, 120, 121)))
else
    created, completed_at = struct.pack('>d', now), 0
end
if ARGV[7] ~= '' then lease_until = now + ARGV[7] end
if ARGV[8] ~= '' then expires_at = now + ARGV[8] end
if ARGV[9] == '' then completed_at = 0 elseif completed_at == 0 then completed_at = now end

local times = struct.pack('>ddd', lease_until, completed_at, expires_at)
local value = ARGV[2] .. ARGV[3] .. times .. ARGV[4] .. created .. life .. ARGV[5]
local last = math.max(expires_at, ARGV[9] == '' and lease_until or 0)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((last - now) / 1000), 1))
return {string.format('%.0f', now), value}
