// Package strict reads and writes the JSON of settings. It refuses what encoding/json accepts by
// mistake, and its errors name the place in the text.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Error says what is wrong with one value.
type Error struct {
	Path string // such as tools.web_search.alternatives[1]; empty for the whole text
	Text string // such as "got 3, want a string"
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Text
	}
	return e.Path + ": " + e.Text
}

// Decode sets the fields of *into that the JSON object in data has, in the order of T. After an
// error *into is partly set. Null is like an absent field. These are errors:
//
//   - a field that T does not have, or that is there twice
//   - a value of the wrong type; durations are text such as "30s"
//   - a 0 for a field that is not 0 in defaults, because it would be taken for an absent field
//   - null in a list or a map
//
// Decode calls start, if it is not nil, before it decodes into a pointer, with the address of the
// pointer. start may set the pointer to a value that the JSON then changes. Decode changes a copy
// of it.
func Decode[T any](data []byte, into *T, defaults T, start func(pointer any)) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return err
	}
	d := decoder{defaults: reflect.ValueOf(defaults), start: start}
	return d.structure("", data, reflect.ValueOf(into).Elem())
}

type decoder struct {
	defaults reflect.Value // of the outermost struct
	start    func(pointer any)
}

// wants says what JSON must have for a kind.
var wants = map[reflect.Kind]string{
	reflect.Bool:    "true or false",
	reflect.Int:     "a whole number",
	reflect.Float64: "a number",
	reflect.String:  "a string",
	reflect.Slice:   "a list",
	reflect.Map:     "a JSON object",
	reflect.Struct:  "a JSON object",
	reflect.Pointer: "a value",
}

func mismatch(path string, data []byte, want string) error {
	return &Error{path, fmt.Sprintf("got %.64s, want %s", bytes.TrimSpace(data), want)}
}

// value decodes a value into place. It is not for a field that is null.
func (d *decoder) value(path string, data []byte, place reflect.Value) error {
	switch v := place.Addr().Interface().(type) {
	case *time.Duration:
		var text string
		err := json.Unmarshal(data, &text)
		if err == nil {
			*v, err = time.ParseDuration(text)
		}
		if err != nil {
			return mismatch(path, data, `a duration such as "30s"`)
		}
		return nil
	case json.Unmarshaler:
		err := v.UnmarshalJSON(data)
		if inner := (*Error)(nil); errors.As(err, &inner) {
			if inner.Path != "" && inner.Path[0] != '[' {
				path += "."
			}
			return &Error{path + inner.Path, inner.Text}
		}
		return err
	}
	kind := place.Kind()
	if string(data) == "null" {
		return mismatch(path, data, wants[kind])
	}
	switch kind {
	case reflect.Struct:
		return d.structure(path, data, place)
	case reflect.Map:
		return d.dictionary(path, data, place)
	case reflect.Slice:
		return d.list(path, data, place)
	case reflect.Pointer:
		if d.start != nil {
			d.start(place.Addr().Interface())
		}
		target := reflect.New(place.Type().Elem())
		if !place.IsNil() {
			target.Elem().Set(place.Elem())
		}
		place.Set(target)
		return d.value(path, data, target.Elem())
	}
	if json.Unmarshal(data, place.Addr().Interface()) != nil {
		return mismatch(path, data, wants[kind])
	}
	return nil
}

func (d *decoder) structure(path string, data []byte, place reflect.Value) error {
	values := map[string]json.RawMessage{}
	known := map[string]bool{}
	for i := range place.NumField() {
		known[name(place.Type().Field(i))] = true
	}
	err := object(path, data, func(path, name string, value json.RawMessage) error {
		if !known[name] {
			return &Error{path, "unknown field"}
		}
		values[name] = value
		return nil
	})
	if err != nil {
		return err
	}
	for i := range place.NumField() {
		name := name(place.Type().Field(i))
		value, given := values[name]
		if !given || string(value) == "null" {
			continue
		}
		inside := Join(path, name)
		if err := d.value(inside, value, place.Field(i)); err != nil {
			return err
		}
		if path == "" && place.Field(i).IsZero() && !d.defaults.Field(i).IsZero() {
			return &Error{inside, "got 0, want a value, or no such field for the default"}
		}
	}
	return nil
}

func (d *decoder) dictionary(path string, data []byte, place reflect.Value) error {
	place.Set(reflect.MakeMap(place.Type()))
	return object(path, data, func(path, name string, value json.RawMessage) error {
		element := reflect.New(place.Type().Elem()).Elem()
		if err := d.value(path, value, element); err != nil {
			return err
		}
		place.SetMapIndex(reflect.ValueOf(name), element)
		return nil
	})
}

func (d *decoder) list(path string, data []byte, place reflect.Value) error {
	var items []json.RawMessage
	if json.Unmarshal(data, &items) != nil {
		return mismatch(path, data, wants[reflect.Slice])
	}
	place.Set(reflect.MakeSlice(place.Type(), len(items), len(items)))
	for i, item := range items {
		if err := d.value(fmt.Sprintf("%s[%d]", path, i), item, place.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// object calls field for each field of a JSON object, in the order of the text.
func object(path string, data []byte, field func(path, name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return mismatch(path, data, wants[reflect.Struct])
	}
	seen := map[string]bool{}
	for d.More() {
		var value json.RawMessage
		key, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return err
		}
		name := key.(string)
		inside := Join(path, name)
		if seen[name] {
			return &Error{inside, "is there twice"}
		}
		seen[name] = true
		if err := field(inside, name, value); err != nil {
			return err
		}
	}
	return nil
}

// Join returns the path of the field name below path. It quotes a name that would be unclear in a
// path.
func Join(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, ".[]\"\\ \t\n"):
		return fmt.Sprintf("%s[%q]", path, name)
	case path == "":
		return name
	}
	return path + "." + name
}

// name returns the JSON name of a field.
func name(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Encode writes the fields in which the struct v differs from base as a JSON object, in the order
// of T. Decode of it over base gives v.
func Encode[T any](v, base T) ([]byte, error) {
	out := []byte{'{'}
	value, other := reflect.ValueOf(v), reflect.ValueOf(base)
	for i := range value.NumField() {
		field := value.Field(i).Interface()
		if field == other.Field(i).Interface() {
			continue
		}
		if d, ok := field.(time.Duration); ok {
			field = Duration(d)
		}
		text, err := json.Marshal(field)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(fmt.Appendf(out, "%q:", name(value.Type().Field(i))), text...)
	}
	return append(out, '}'), nil
}

// Duration returns the usual text of d without the zero units at its end: "10m", not "10m0s".
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
