-- Keep a copy, its instants moved to this server's clock, by which they will be read.
-- ARGV: the copy, its writer's clock, how long to keep it in milliseconds. The layout is stores/packing.py's.
local time, copy = redis.call('TIME'), ARGV[1]
local ahead = time[1] * 1000000 + time[2] - struct.unpack('>d', ARGV[2])
local instants = {struct.unpack('>ddddd', string.sub(copy, 33, 72))}
for place = 1, 5 do
    if instants[place] ~= 0 then instants[place] = instants[place] + ahead end
end
local moved = struct.pack('>ddddd', unpack(instants))
redis.call('SET', KEYS[1], string.sub(copy, 1, 32) .. moved .. string.sub(copy, 73), 'PX', ARGV[3])
return 1
