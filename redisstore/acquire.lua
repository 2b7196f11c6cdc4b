
local function claim()
	r.u = math.min(r.u, now)
	r.pf, r.pu = request.fence, now + request.lease
	change()
end

cut()
if request.fence ~= '' and r.pf == request.fence then
	r.pu = now + request.lease
	save()
elseif not r.e and request.action:find('lost') then
	r.g = request.generation
	reopen()
	claim()
elseif r.u and left(r.pu) == 0 and (r.u <= now or request.action:find('early') and not r.a) then
	claim()
end
return view()
