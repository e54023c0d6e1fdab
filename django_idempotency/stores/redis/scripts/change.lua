-- Take or settle a record, if it is still as it was seen. Answer with the clock; or with nothing; or, where the record
-- was born otherwise than the new body says, with the record as it stands.
-- ARGV: what was seen (an owner token, or a whole head); lease and retention in microseconds (NaN: as it is),
-- signature, body; '1' for a new life. The layout is stores/packing.py's.
local old = redis.call('GET', KEYS[1])
local seen = old and (#ARGV[1] == 16 and string.sub(old, 75, 90) or string.sub(old, 73, 94))
if seen ~= ARGV[1] then return false end

local given, new = ARGV[2], ARGV[3] == '1'
local life = string.sub(given, 104, 105 + struct.unpack('>I2', string.sub(given, 104, 105)))
-- The signature covers the birth, so it must be known to the one who signs.
if not new and string.sub(old, 128, 127 + #life) ~= life then return old end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lease, retention = struct.unpack('>dd', given)
local lease_until, completed_at, expires_at, created_at, purge_at = struct.unpack('>ddddd', string.sub(old, 33, 72))
-- Taken over, unless its owner has renewed its lease since it was seen.
if #ARGV[1] ~= 16 and string.byte(old, 74) == 1 and lease_until > now then return false end
if new then created_at, completed_at = now, 0 end
local completes = string.byte(given, 50) == 2
-- NaN is not even equal to itself.
if lease == lease then lease_until = now + lease end
if retention == retention then expires_at = now + retention end
purge_at = math.max(purge_at, expires_at)
if not completes then completed_at = 0 elseif completed_at == 0 then completed_at = now end

local instants = struct.pack('>ddddd', lease_until, completed_at, expires_at, created_at, purge_at)
local last = math.max(purge_at, completes and 0 or lease_until)
local value = string.sub(given, 17, 48) .. instants .. string.sub(given, 49)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((last - now) / 1000), 1))
return struct.pack('>d', now)
