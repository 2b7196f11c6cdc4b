
return view()
