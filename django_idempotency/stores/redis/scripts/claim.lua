-- Insert a record if there is none. Return the clock and the existing record.
-- ARGV: the record, in place of its deadlines its lease and its retention in microseconds.
local moment, old = now(), redis.call('GET', KEYS[1])
if not old or old == '' then
    local record = read(ARGV[1])
    record.created_at, record.lease_until = moment, moment + record.lease_until
    record.expires_at = moment + record.expires_at
    record.purge_at = record.expires_at
    save(record, moment)
    old = ''
end
return struct.pack('>d', moment) .. old
