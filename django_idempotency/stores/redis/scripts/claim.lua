-- Insert a record if there is none. Return the clock and the existing record.
-- ARGV: the record without its instants; its lease and its retention in microseconds.
local moment, old = now(), redis.call('GET', KEYS[1])
if not old or old == '' then
    local record = read(ARGV[1])
    record.created_at, record.lease_until = moment, moment + ARGV[2]
    record.expires_at = moment + ARGV[3]
    record.purge_at = record.expires_at
    save(record, moment)
    old = ''
end
return struct.pack('>d', moment) .. old
