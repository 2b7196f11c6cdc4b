package shape

import (
	"net/http"
	"reflect"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// field is an exported field of a struct, or one that an embedded struct promotes.
type field struct{ reflect.StructField }

// in returns the field of v, which is the struct or a pointer to it. It panics if there is a
// nil pointer on the way.
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

// fieldOf returns how to read the first exported field of t that has exactly the type want and
// one of names; nil if there is none.
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

// headerOf returns how to read the field Header of t, which need not have one.
func headerOf(t reflect.Type) func(error) http.Header {
	header := fieldOf(t, typeOf[http.Header](), "Header")
	return func(err error) http.Header {
		if header == nil {
			return nil
		}
		h, _ := header(reflect.ValueOf(err)).Interface().(http.Header)
		return h
	}
}

// gives reports whether method, whose receiver is an argument, takes no other and returns one
// value of kind k.
func gives(method reflect.Value, k reflect.Kind) bool {
	t := method.Type()
	return t.NumIn() == 1 && t.NumOut() == 1 && t.Out(0).Kind() == k
}

// call calls a method of receiver that takes nothing and returns one value.
func call(method reflect.Value, receiver any) reflect.Value {
	return method.Call([]reflect.Value{reflect.ValueOf(receiver)})[0]
}
