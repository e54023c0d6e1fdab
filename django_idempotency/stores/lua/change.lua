-- Take or settle a record, if it is still as it was seen. Answer with the clock, and with the new value if it was
-- taken; or with nothing.
-- ARGV: what was seen (an owner token, or a whole head); lease and retention in microseconds (NaN: as it is), seal,
-- head and digest; life ('': as it is); outcome.
local old = redis.call('GET', KEYS[1])
local seen = old and (#ARGV[1] == 16 and string.sub(old, 35, 50) or string.sub(old, 33, 54))
if seen ~= ARGV[1] then return false end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock, given = struct.pack('>d', now), ARGV[2]
local lease, retention = struct.unpack('>dd', given)
local lease_until, completed_at, expires_at = struct.unpack('>ddd', string.sub(old, 55, 78))
-- Taken over, unless its owner has renewed its lease since it was seen.
if #ARGV[1] ~= 16 and string.byte(old, 34) == 1 and lease_until > now then return false end
local created, life = string.sub(old, 112, 119), ARGV[3]
if life == '' then
    life = string.sub(old, 120, 121 + struct.unpack('>I2', string.sub(old, 120, 121)))
else
    created, completed_at = clock, 0
end
local completes = string.byte(given, 50) == 2
-- NaN is not even equal to itself.
if lease == lease then lease_until = now + lease end
if retention == retention then expires_at = now + retention end
if not completes then completed_at = 0 elseif completed_at == 0 then completed_at = now end

local times = struct.pack('>ddd', lease_until, completed_at, expires_at)
local value = string.sub(given, 17, 70) .. times .. string.sub(given, 71, 103) .. created .. life .. ARGV[4]
local last = math.max(expires_at, completes and 0 or lease_until)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((last - now) / 1000), 1))
return lease == lease and clock .. value or clock
