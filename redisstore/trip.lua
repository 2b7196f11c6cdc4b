
-- fade forgets one opening after another, each after the wait that the curve gives for it. Those
-- with the longest wait go at once, because there may be millions.
local function fade(generation, closed)
	local flat = 1
	if request.multiplier > 1 then
		flat = 1 + math.ceil(math.log(request.max_cooldown / request.cooldown) / math.log(request.multiplier))
	end
	if generation > flat then
		local gone = math.min(generation - flat, math.floor(closed / curve(generation)))
		generation, closed = generation - gone, closed - gone * curve(generation)
	end
	while generation > 0 and closed >= curve(generation) do
		closed = closed - curve(generation)
		generation = generation - 1
	end
	return generation
end

cut()
if not r.e then
	r.g = request.generation
	reopen()
	change()
elseif r.u and r.u > now and left(r.pu) == 0 then
	local until_, asked = r.u, nil
	if request.asked == 1 then
		until_, asked = now + asked_wait(), 1
	elseif r.a then
		until_ = (r.o or now) + spread(r.g)
	end
	if until_ > r.u then
		r.u, r.a = until_, asked
		change()
	end
elseif not r.u and r.e <= request.epoch then
	r.g = fade(r.g or 0, now - (r.k or now))
	if request.action ~= 'pause' then
		r.g = r.g + 1
	end
	reopen()
	change()
end
return view()
