package toolset

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unknown stands for arguments that nobody knows. They are equal to none, not even to one
// another.
var Unknown any = unknown{}

type unknown struct{}

// MarshalJSON fails, so that what holds Unknown equals nothing either.
func (unknown) MarshalJSON() ([]byte, error) { return nil, errNotCanonical }

var errNotCanonical = errors.New("toolset: no canonical form")

// appendCanonical appends the one text that stands for all JSON values which equal v: members
// sorted by key, null members kept, since a tool may tell them from absent ones, and numbers as
// exact decimals. An error means that v is equal to nothing: it is no JSON, it has two members
// of one name or half a surrogate pair, which decoders read differently (RFC 8259, sections 4
// and 8.2), invalid UTF-8, an exponent of more than 18 digits, or a part that JSON does not show.
//
// A [json.RawMessage] is the text itself, anything else goes through [json.Marshal].
func appendCanonical(dst []byte, v any) (_ []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // in a MarshalJSON
			err = fmt.Errorf("%w: panic: %v", errNotCanonical, p)
		}
	}()
	if v == Unknown { // as MarshalJSON says, at once
		return nil, errNotCanonical
	}
	text, given := v.(json.RawMessage)
	if given = given && text != nil; !given {
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
		if hides(reflect.ValueOf(v)) { // only now, for Marshal has found no loop
			return nil, errNotCanonical
		}
	}
	if !json.Valid(text) || !wellFormed(text, given) {
		return nil, errNotCanonical
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	tree, err := parse(dec)
	if err != nil {
		return nil, err
	}
	return write(dst, tree), nil
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// hides reports whether v has a part of which its JSON says nothing: a struct that holds
// something but has no field for JSON and no MarshalJSON of its own. All such look alike.
func hides(v reflect.Value) bool {
	if k := v.Kind(); k < reflect.Array || k == reflect.String { // none or a plain value
		return false
	}
	if marshals(v.Type()) || v.CanAddr() && marshals(reflect.PointerTo(v.Type())) {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return hides(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if hides(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if hides(entries.Value()) {
				return true
			}
		}
	case reflect.Struct:
		return structHides(v)
	}
	return false
}

func structHides(v reflect.Value) bool {
	silent := v.Type().Size() > 0
	for _, f := range reflect.VisibleFields(v.Type()) {
		if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && isStruct(f.Type) { // whose fields come by themselves
			continue
		}
		silent = false
		if field, err := v.FieldByIndexErr(f.Index); err == nil && hides(field) {
			return true
		}
	}
	return silent
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func marshals(t reflect.Type) bool { return t.Implements(marshaler) || t.Implements(textMarshaler) }

// wellFormed reports whether valid JSON text says which characters it means. In text that was
// not given but marshaled, the escape of U+FFFD stands for bytes that were not UTF-8; the
// character itself is never escaped.
func wellFormed(text []byte, given bool) bool {
	if !utf8.Valid(text) {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; text[i] != 'u' {
			continue
		}
		r := escaped(text[i+1:])
		i += 4
		switch {
		case !given && r == utf8.RuneError:
			return false
		case utf16.IsSurrogate(r):
			if !bytes.HasPrefix(text[i+1:], []byte(`\u`)) || utf16.DecodeRune(r, escaped(text[i+3:])) == utf8.RuneError {
				return false
			}
			i += 6
		}
	}
	return true
}

// escaped returns what the four hexadecimal digits at the beginning of text say.
func escaped(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 32)
	return rune(n)
}

// A JSON value as parse returns it is nil, a bool, a string, a number, a []any or an object.
type (
	number   string // as canonicalNumber returns it
	object   []property
	property struct {
		key   string
		value any
	}
)

// parse reads one value.
func parse(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return canonicalNumber(string(t))
	case json.Delim:
		if t == '{' {
			return parseObject(dec)
		}
		list := []any{}
		for dec.More() {
			v, err := parse(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return token, nil
}

// parseObject reads an object whose brace is read.
func parseObject(dec *json.Decoder) (any, error) {
	o := object{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := parse(dec)
		if err != nil {
			return nil, err
		}
		o = append(o, property{key.(string), value})
	}
	slices.SortFunc(o, func(a, b property) int { return cmp.Compare(a.key, b.key) })
	for i := 1; i < len(o); i++ {
		if o[i].key == o[i-1].key {
			return nil, errNotCanonical
		}
	}
	_, err := dec.Token()
	return o, err
}

// canonicalNumber returns a JSON number as its digits, without zeros at either end, and a power
// of ten: 100, 1e2 and 1.0E+02 are 1e2.
func canonicalNumber(s string) (number, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", nil
	}
	power, err := strconv.ParseInt(cmp.Or(exponent, "0"), 10, 63) // room for what is added
	if err != nil {
		return "", errNotCanonical
	}
	short := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(short) - len(fraction))
	if negative {
		short = "-" + short
	}
	return number(short + "e" + strconv.FormatInt(power, 10)), nil
}

// write appends the text of a value.
func write(dst []byte, v any) []byte {
	switch v := v.(type) {
	case object:
		dst = append(dst, '{')
		for _, p := range v {
			dst = append(strconv.AppendQuote(dst, p.key), ':')
			dst = append(write(dst, p.value), ',')
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for _, item := range v {
			dst = append(write(dst, item), ',')
		}
		return append(dst, ']')
	case string:
		return strconv.AppendQuote(dst, v)
	case number:
		return append(dst, v...)
	case bool:
		return strconv.AppendBool(dst, v)
	}
	return append(dst, "null"...)
}
