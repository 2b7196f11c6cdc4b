package repeat

import (
	"encoding"
	"encoding/json"
	"reflect"
	"runtime"
	"sync"
)

// opaque reports whether v must not be compared by its JSON. That is so if v
//
//   - hides a part of itself
//   - is nested deeper than maxDepth, which would cost encoding/json the stack
//   - is larger than most bytes
//
// A value hides a part if it has a struct that holds something but has neither a field for JSON
// nor a MarshalJSON of its own. All such structs look alike as JSON. A method that it has from an
// embedded field, such as a time.Time, knows nothing of the other fields.
func opaque(v any, most int) bool {
	w := walker{left: most}
	return !w.any(v, 0)
}

// walker looks through a value. Its methods return false as soon as the value is opaque.
type walker struct{ left int }

// take counts bytes of which v has at least n as JSON. It reports whether v is not too large.
func (w *walker) take(n int) bool {
	w.left -= n
	return w.left >= 0
}

// any is value for the content of an interface. It needs no reflection for what JSON decodes to.
func (w *walker) any(v any, depth int) bool {
	switch v := v.(type) {
	case nil, bool, float64, int:
		return w.take(1)
	case string:
		return w.take(len(v))
	case []any:
		if depth > maxDepth {
			return false
		}
		for _, item := range v {
			if !w.any(item, depth+1) {
				return false
			}
		}
		return w.take(len(v))
	case map[string]any:
		if depth > maxDepth {
			return false
		}
		for key, item := range v {
			if !w.take(len(key)) || !w.any(item, depth+1) {
				return false
			}
		}
		return w.take(1)
	}
	return w.value(reflect.ValueOf(v), layoutOf(reflect.TypeOf(v)), depth)
}

func (w *walker) value(v reflect.Value, l *layout, depth int) bool {
	if l.hides || depth > maxDepth {
		return false
	}
	if l.small {
		return w.take(1)
	}
	switch v.Kind() {
	case reflect.String:
		return w.take(v.Len())
	case reflect.Interface:
		return v.IsNil() || w.any(v.Elem().Interface(), depth+1)
	case reflect.Pointer:
		return v.IsNil() || w.value(v.Elem(), l.elem, depth+1)
	case reflect.Slice, reflect.Array:
		if !w.take(v.Len()) || l.elem.small {
			return w.left >= 0
		}
		for i := range v.Len() {
			if !w.value(v.Index(i), l.elem, depth+1) {
				return false
			}
		}
	case reflect.Map:
		if !w.take(v.Len()) || l.elem.small {
			return w.left >= 0
		}
		for entries := v.MapRange(); entries.Next(); {
			if !w.value(entries.Value(), l.elem, depth+1) {
				return false
			}
		}
	case reflect.Struct:
		for _, f := range l.fields {
			if part, err := v.FieldByIndexErr(f.index); err == nil && !w.value(part, f.layout, depth+1) {
				return false
			}
		}
	}
	return w.take(1)
}

// layout is what is the same for all values of a type.
type layout struct {
	hides  bool    // each value hides a part
	small  bool    // no value needs a look inside
	elem   *layout // of a pointer, slice, array or map
	fields []field // that are not small
}

type field struct {
	index  []int
	layout *layout
}

// place is a type and where its value stands: a method of a pointer receiver is found only on an
// addressable value.
type place struct {
	t           reflect.Type
	addressable bool
}

var layouts sync.Map // of reflect.Type to *layout, of types at the top of a value

func layoutOf(t reflect.Type) *layout {
	if l, ok := layouts.Load(t); ok {
		return l.(*layout)
	}
	l, _ := layouts.LoadOrStore(t, lay(place{t, false}, map[place]*layout{}))
	return l.(*layout)
}

// lay returns the layout of a type. done has the layouts that are known or under way, so that a
// type may contain itself. Such a type is never small.
func lay(p place, done map[place]*layout) *layout {
	if l := done[p]; l != nil {
		return l
	}
	l := new(layout)
	done[p] = l
	if marshals(p.t) || p.addressable && marshals(reflect.PointerTo(p.t)) {
		l.hides = inherits(p.t)
		l.small = !l.hides
		return l
	}
	switch p.t.Kind() {
	case reflect.String, reflect.Interface:
	case reflect.Pointer, reflect.Slice:
		l.elem = lay(place{p.t.Elem(), true}, done)
	case reflect.Map:
		l.elem = lay(place{p.t.Elem(), false}, done)
	case reflect.Array:
		l.elem = lay(place{p.t.Elem(), p.addressable}, done)
		l.hides = l.elem.hides && p.t.Len() > 0
	case reflect.Struct:
		l.hides = p.t.Size() > 0
		for _, f := range reflect.VisibleFields(p.t) {
			if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && isStruct(f.Type) { // VisibleFields has its fields, too
				continue
			}
			l.hides = false
			if part := lay(place{f.Type, p.addressable || throughPointer(p.t, f.Index)}, done); !part.small {
				l.fields = append(l.fields, field{f.Index, part})
			}
		}
		l.small = !l.hides && len(l.fields) == 0
	default:
		l.small = true
	}
	return l
}

// throughPointer reports whether a field of a struct is reached through an embedded pointer.
func throughPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func marshals(t reflect.Type) bool { return t.Implements(marshaler) || t.Implements(textMarshaler) }

// inherits reports whether a struct, or what a pointer points to, is written as JSON by a method
// of an embedded field, and has other fields.
func inherits(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && (marshals(f.Type) || marshals(reflect.PointerTo(f.Type))) {
			return generated(t) && (t.NumField() > 1 || inherits(f.Type))
		}
	}
	return false
}

// generated reports whether the compiler wrote the method that writes t as JSON. It does so for a
// method of an embedded field.
func generated(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	m, ok := t.MethodByName("MarshalJSON")
	if !ok {
		m, ok = pointer.MethodByName("MarshalJSON")
	}
	if !ok {
		m, ok = t.MethodByName("MarshalText")
	}
	if !ok {
		m, _ = pointer.MethodByName("MarshalText")
	}
	code := runtime.FuncForPC(m.Func.Pointer())
	file, _ := code.FileLine(code.Entry())
	return file == "<autogenerated>"
}
