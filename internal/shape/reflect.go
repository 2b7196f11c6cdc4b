package shape

import (
	"net/http"
	"reflect"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// field is an exported field of a struct, or one that an embedded struct promotes.
type field struct{ reflect.StructField }

// in returns the field of v, a struct or a pointer to it. It panics at a nil pointer on the way.
func (f field) in(v reflect.Value) reflect.Value {
	for _, i := range f.Index {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// fieldsOf returns the exported fields of t, or of the struct that it points to.
func fieldsOf(t reflect.Type) (found []field) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			found = append(found, field{f})
		}
	}
	return found
}

// fieldOf returns a function that reads the first exported field of t whose type is exactly want
// and whose name is one of names. It returns nil if there is none.
func fieldOf(t, want reflect.Type, names ...string) func(reflect.Value) reflect.Value {
	for _, name := range names {
		for _, f := range fieldsOf(t) {
			if f.Name == name && f.Type == want {
				return f.in
			}
		}
	}
	return nil
}

// headerOf returns a function that reads the field Header of t. That function returns nil if t has
// none, and if the field belongs to an embedded struct that is nil.
func headerOf(t reflect.Type) func(error) http.Header {
	header := fieldOf(t, typeOf[http.Header](), "Header")
	return func(err error) (h http.Header) {
		if header != nil {
			try(func() { h, _ = header(reflect.ValueOf(err)).Interface().(http.Header) })
		}
		return h
	}
}

// gives reports whether a method takes no argument except its receiver and returns one value of
// kind k.
func gives(method reflect.Value, k reflect.Kind) bool {
	t := method.Type()
	return t.NumIn() == 1 && t.NumOut() == 1 && t.Out(0).Kind() == k
}

// call calls a method that takes no argument and returns one value.
func call(method reflect.Value, receiver any) reflect.Value {
	return method.Call([]reflect.Value{reflect.ValueOf(receiver)})[0]
}

// try calls f, which reads what is beside an opinion. If that panics, the opinion stays.
func try(f func()) {
	defer func() { recover() }()
	f()
}
