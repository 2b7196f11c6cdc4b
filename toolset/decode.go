package toolset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// MarshalJSON writes the fields that are not zero.
func (c Config) MarshalJSON() ([]byte, error) {
	type fields Config
	return json.Marshal(struct {
		fields
		IdleAfter   string `json:"idleAfter,omitempty"`
		HideAtLeast string `json:"hideAtLeast,omitempty"`
	}{fields(c), durationText(c.IdleAfter), durationText(c.HideAtLeast)})
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// UnmarshalJSON makes c what data says, and leaves it as it is on an error. It finds what
// Load finds in data alone; the rest is for New and Apply to find.
func (c *Config) UnmarshalJSON(data []byte) error {
	var next Config
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return fmt.Errorf("toolset: config: %w", err)
	}
	if err := decode("", data, reflect.ValueOf(&next).Elem()); err != nil {
		return fmt.Errorf("toolset: config: %w", err)
	}
	*c = next
	return nil
}

// notZero has the places where 0 would be taken for the default.
var notZero = map[string]bool{"maxCircuits": true, "idleAfter": true}

// decode decodes a JSON value into its place. Unlike encoding/json it takes no field that is
// not there or is there twice, and says where an error is.
func decode(path string, data []byte, place reflect.Value) error {
	switch v := place.Addr().Interface().(type) {
	case *time.Duration:
		var text string
		err := json.Unmarshal(data, &text)
		if err == nil {
			*v, err = time.ParseDuration(text)
		}
		if err != nil {
			return fmt.Errorf(`%s: got %s, want a duration such as "30s"`, path, data)
		}
	case *Overlay:
		if err := v.UnmarshalJSON(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	default:
		if err := decodeKind(path, data, place); err != nil {
			return err
		}
	}
	if place.IsZero() && notZero[path] {
		return fmt.Errorf("%s: got 0, want a value, or no such field for the default", path)
	}
	return nil
}

// wants has what JSON has for a kind.
var wants = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.String: "a string",
}

// decodeKind is decode for what the kind of the place tells all about.
func decodeKind(path string, data []byte, place reflect.Value) error {
	switch place.Kind() {
	case reflect.Struct:
		fields := map[string]reflect.Value{}
		for i := range place.NumField() {
			name, _, _ := strings.Cut(place.Type().Field(i).Tag.Get("json"), ",")
			fields[name] = place.Field(i)
		}
		return decodeObject(path, data, func(path, name string, value []byte) error {
			field, known := fields[name]
			if !known {
				return fmt.Errorf("%s: unknown field", path)
			}
			if string(value) == "null" {
				return nil
			}
			return decode(path, value, field)
		})
	case reflect.Map:
		place.Set(reflect.MakeMap(place.Type()))
		return decodeObject(path, data, func(path, name string, value []byte) error {
			element := reflect.New(place.Type().Elem()).Elem()
			if err := decode(path, value, element); err != nil {
				return err
			}
			place.SetMapIndex(reflect.ValueOf(name), element)
			return nil
		})
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return fmt.Errorf("%s: got %s, want a list", path, data)
		}
		place.Set(reflect.MakeSlice(place.Type(), len(items), len(items)))
		for i, item := range items {
			if err := decode(fmt.Sprintf("%s[%d]", path, i), item, place.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := json.Unmarshal(data, place.Addr().Interface()); err != nil {
		return fmt.Errorf("%s: got %s, want %s", path, data, wants[place.Kind()])
	}
	return nil
}

// decodeObject calls field for each field of a JSON object.
func decodeObject(path string, data []byte, field func(path, name string, value []byte) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New(strings.TrimPrefix(fmt.Sprintf("%s: got %s, want an object", path, data), ": "))
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
		inside := join(path, name)
		if seen[name] {
			return fmt.Errorf("%s: is there twice", inside)
		}
		seen[name] = true
		if err := field(inside, name, value); err != nil {
			return err
		}
	}
	return nil
}

// join returns the path of what a name leads to.
func join(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, ".[]\"\\ \t\n"):
		return fmt.Sprintf("%s[%q]", path, name)
	case path == "":
		return name
	}
	return path + "." + name
}
