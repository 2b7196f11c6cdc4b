
local function close(generation)
	r = { g = generation, e = r.e, k = now }
end

cut()
if request.action == 'reset' then
	close(0)
	change()
elseif request.fence ~= '' and r.pf == request.fence then
	r.pf, r.pu = nil, nil
	if request.action == 'ok' then
		r.s = (r.s or 0) + 1
		if r.s >= request.probe_successes then
			close(r.g)
		end
	elseif request.action ~= 'abandoned' then
		if request.action == 'failed' then
			r.g = (r.g or 0) + 1
		end
		reopen()
	end
	change()
end
return view()
