-- What every script begins with: the request, the record, and what the record says now.
-- Times and durations are milliseconds on this server's clock, with three decimals.

local request = {}
for i, name in ipairs {
	'channel', 'key', 'fence', 'action', 'cause',
} do
	request[name] = ARGV[i]
end
for i, name in ipairs {
	'cooldown', 'max_cooldown', 'multiplier', 'jitter', 'draw', 'max_retry_after', 'probe_successes', 'lease',
	'retention', 'epoch', 'generation', 'wait', 'asked', 'age', 'failures',
} do
	request[name] = tonumber(ARGV[5 + i] or 0)
end

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

local numbers = { 'g', 'e', 'o', 'k', 'n', 's', 'u', 'a', 'pu' }
local texts = { 'c', 'pf' }
local fields = { unpack(numbers) }
for _, name in ipairs(texts) do
	fields[#fields + 1] = name
end

-- r is the record. What is no number counts as missing, and a record without an epoch as none.
local r = {}
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
	if value and i <= #numbers then
		value = tonumber(value)
		if value and not (value > -2 ^ 53 and value < 2 ^ 53) then
			value = nil
		end
	end
	r[fields[i]] = value or nil
end
if not r.e then
	r = {}
end

local function left(time)
	return math.max((time or 0) - now, 0)
end

-- view is the answer to every request.
local function view()
	return string.format('%s %.0f %.0f %.3f %.3f %s %.0f %.3f %s %s',
		r.u and 1 or 0, r.g or 0, r.e or 0, left(r.u), left(r.pu), r.a and 1 or 0, r.n or 0,
		r.e and math.max(now - (r.o or r.k or now), 0) or 0, r.c or '', r.pf or '')
end

-- save writes the record. Nothing is removed before something could be written, so that a server
-- without memory loses nothing.
local function save()
	local set, gone = {}, {}
	for _, name in ipairs(fields) do
		local value = r[name]
		if type(value) == 'number' then
			value = string.format('%.3f', value):gsub('%.000$', '')
		end
		if value then
			set[#set + 1] = name
			set[#set + 1] = value
		else
			gone[#gone + 1] = name
		end
	end
	redis.call('HSET', KEYS[1], unpack(set))
	if #gone > 0 then
		redis.call('HDEL', KEYS[1], unpack(gone))
	end
	local over = r.u and math.max(now, r.u, r.pu or 0) or now
	redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(over - now + request.retention)))
end

-- change gives the record a new epoch and tells all workers.
local function change()
	r.e = math.max((r.e or 0) + 1, request.epoch + 1, time[1] * 1000000 + time[2])
	save()
	redis.call('PUBLISH', request.channel, '1 ' .. view() .. ' ' .. request.key)
end

-- cut shortens what a clock that stepped back has made too long.
local function cut()
	local before = { r.u, r.pu, r.o, r.k }
	local longest = r.a and request.max_retry_after or request.max_cooldown
	for name, latest in pairs { u = now + longest, pu = now + request.lease, o = now, k = now } do
		r[name] = r[name] and math.min(r[name], latest)
	end
	if r.u ~= before[1] or r.pu ~= before[2] or r.o ~= before[3] or r.k ~= before[4] then
		save()
	end
end

-- curve is the wait after the opening that gives the record this generation, and spread is it with
-- the jitter that the worker drew. At the cap that needs room below.
local function curve(generation)
	return math.min(request.cooldown * request.multiplier ^ math.max(generation - 1, 0), request.max_cooldown)
end

local function spread(generation)
	local wait, max = curve(generation), request.max_cooldown
	if request.jitter > 0 then
		local least = math.max(request.cooldown, math.min(wait, max / (1 + request.jitter)))
		wait = least + math.min(request.jitter * request.draw * least, max - least)
	end
	return wait
end

local function asked_wait()
	return math.min(math.max(request.wait, 1), request.max_retry_after)
end

-- reopen opens the record as the request says.
local function reopen()
	local wait = request.wait
	if request.asked == 1 then
		wait = asked_wait()
	elseif wait <= 0 then
		wait = spread(r.g)
	else
		wait = math.min(wait, request.max_cooldown)
	end
	r = {
		g = r.g, e = r.e, o = now - request.age, u = now + wait,
		a = request.asked == 1 and 1 or nil, c = request.cause, n = request.failures,
	}
end
