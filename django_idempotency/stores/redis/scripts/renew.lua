-- Renew the lease of a running record, if the owner still has it. ARGV: owner token, lease in microseconds.
-- Many calls are sent together, and an error in one would fail all. So a value that is not our record is not renewed.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or #value < struct.size(FORMAT) then return 0 end
local record = read(value)
if record.status ~= RUNNING or record.owner ~= ARGV[1] then return 0 end
-- Beyond the year 9999, or NaN (never less than anything): the record reads as absent.
if not (record.purge_at < 253402300800000000) then return 0 end
local moment = now()
record.lease_until = moment + ARGV[2]
save(record, moment)
return 1
