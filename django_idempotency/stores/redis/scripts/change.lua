-- Take or settle a record, if it is still as it was seen. Return the clock; or nothing, if it is not; or the current
-- record, if it was born with another life than the new one has.
-- ARGV: the new record, in place of its deadlines its lease and its retention in microseconds (infinite: unchanged);
-- '1' for a new life; what was seen: the owner, for a takeover also the status and the attempt.
local value = redis.call('GET', KEYS[1])
if not value or #value < struct.size(FORMAT) then return false end
local old, new = read(value), read(ARGV[1])
local new_life, status, attempt = ARGV[2] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
if old.owner ~= ARGV[3] or (status and (old.status ~= status or old.attempt ~= attempt)) then return false end
-- The signature covers the life, so the client must know it to sign.
if not new_life and old.life ~= new.life then return value end

local moment = now()
-- Do not take it over if its owner has renewed the lease since it was seen.
if status == RUNNING and old.lease_until > moment then return false end
new.lease_until = new.lease_until < math.huge and moment + new.lease_until or old.lease_until
new.expires_at = new.expires_at < math.huge and moment + new.expires_at or old.expires_at
new.purge_at = math.max(old.purge_at, new.expires_at)
new.created_at, new.completed_at = old.created_at, old.completed_at
if new_life then new.created_at, new.completed_at = moment, 0 end
if new.status ~= COMPLETED then
    new.completed_at = 0
elseif new.completed_at == 0 then
    new.completed_at = moment
end
save(new, moment)
return struct.pack('>d', moment)
