-- Renew the lease of a running record, if it is still its owner's. ARGV: owner token, lease in microseconds.
-- Many are sent together, and an error of one would be an error of all: what is not a record of ours is not renewed.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or #value < struct.size(FORMAT) then return 0 end
local record = read(value)
if record.status ~= RUNNING or record.owner ~= ARGV[1] then return 0 end
-- Beyond the year 9999, or not a number (which is not even less): it reads as absent.
if not (record.purge_at < 253402300800000000) then return 0 end
local moment = now()
record.lease_until = moment + ARGV[2]
save(record, moment)
return 1
