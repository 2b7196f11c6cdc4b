package toolset_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/toolset"
)

func TestEqualArguments(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{Repeats: 100})
	for _, equal := range [][]any{
		{json.RawMessage(`{"a":1,"b":2}`), json.RawMessage("{ \"b\" : 2,\n\"a\" : 1 }"), map[string]int{"b": 2, "a": 1}},
		{json.RawMessage(`{"x":{"a":[1,{"c":1,"b":2}]}}`), json.RawMessage(`{"x":{"a":[1,{"b":2,"c":1}]}}`)},
		{json.RawMessage(`1`), json.RawMessage(`1.0`), json.RawMessage(`10e-1`), json.RawMessage(`0.1E+1`), 1, 1.0, uint8(1)},
		{json.RawMessage(`100`), json.RawMessage(`1e2`), json.RawMessage(`1E+02`), json.RawMessage(`100.000`)},
		{json.RawMessage(`0`), json.RawMessage(`-0`), json.RawMessage(`0.00`), json.RawMessage(`-0e99999999999999999999`), 0},
		{json.RawMessage(`1e400`), json.RawMessage(`1E+400`), json.RawMessage(`10e399`), json.RawMessage(`0.01e402`)},
		{json.RawMessage(`1` + strings.Repeat("0", 100_000)), json.RawMessage(`1e100000`)},
		{json.RawMessage(`9007199254740993`), int64(9007199254740993), json.RawMessage(`9007199254740993.0`)},
		{json.RawMessage(`"é/<"`), json.RawMessage(`"\u00e9\/\u003c"`), "é/<"},
		{json.RawMessage(`"😀"`), json.RawMessage(`"\ud83d\ude00"`), "😀"},
		{json.RawMessage(`"\ufffd"`), json.RawMessage("\"\ufffd\""), "\ufffd"},
		{`\ufffd`, json.RawMessage(`"\\ufffd"`)},
		{nil, json.RawMessage(nil), json.RawMessage(`null`), (*int)(nil)},
		{map[string]any{}, json.RawMessage(`{}`), struct{}{}},
		{[]any{}, json.RawMessage(`[]`)},
	} {
		want := a.keyOf(a.ctx, "free", equal[0])
		require.NotEmpty(t, want)
		for _, args := range equal[1:] {
			require.Equal(t, want, a.keyOf(a.ctx, "free", args), "%s and %s", equal[0], args)
		}
	}
}

func TestDifferentArguments(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{})
	seen := map[string]string{}
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `2`, `1e1`, `1e400`, `1e401`, `1e-400`, `-1e400`,
		`9007199254740992`, `9007199254740993`, `0.1`, `0.10000000000000001`,
		`""`, `"0"`, `"1"`, `"null"`, `"a"`, `"A"`, `"\u00e9"`, `"e\u0301"`, `" "`, `"a\u0000"`, `"\\ufffd"`, `"\ufffd"`,
		`[]`, `[[]]`, `[null]`, `[1,2]`, `[2,1]`, `[12]`, `["1,2"]`, `[[1],2]`, `[1,[2]]`,
		`{}`, `{"a":null}`, `{"a":1}`, `{"a":"1"}`, `{"a":[1]}`, `{"a":1,"b":null}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"":1}`,
	} {
		key := a.keyOf(a.ctx, "free", json.RawMessage(text))
		require.NotEmpty(t, key, text)
		require.Empty(t, seen[key], text)
		seen[key] = text
	}
}

func TestArgumentsThatEqualNothing(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{})
	loop := map[string]any{}
	loop["self"] = loop
	for name, args := range map[string]any{
		"Unknown":                toolset.Unknown,
		"NaN":                    math.NaN(),
		"Inf":                    []float64{math.Inf(-1)},
		"channel":                map[string]any{"c": make(chan int)},
		"a loop":                 loop,
		"no JSON":                json.RawMessage(`{`),
		"empty":                  json.RawMessage{},
		"two values":             json.RawMessage(`1 2`),
		"duplicate":              json.RawMessage(`{"a":1,"b":1,"a":1}`),
		"duplicate in disguise":  json.RawMessage(`[{"a":1,"\u0061":2}]`),
		"invalid UTF-8":          "a\xff",
		"invalid UTF-8, as key":  map[string]int{"a\xff": 1},
		"invalid UTF-8, as text": json.RawMessage("\"a\xff\""),
		"half a pair":            json.RawMessage(`"\ud83d"`),
		"half a pair, and more":  json.RawMessage(`"\ud83d\u0041"`),
		"the other half":         json.RawMessage(`"\ude00\ud83d"`),
		"too large an exponent":  json.RawMessage(`1e9999999999999999999`),
		"too deep":               json.RawMessage(strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)),
		"panics":                 panicky{},
		"Unknown within":         map[string]any{"to": "shop", "amount": toolset.Unknown},
		"Unknown, pointed to":    &toolset.Unknown,
		"hidden":                 handle{1},
		"hidden, pointed to":     &handle{1},
		"hidden within":          hidden{To: "shop", Amount: handle{1}},
		"hidden in a list":       []any{1, []handle{{1}}},
		"hidden in a map":        map[string]any{"x": map[string]handle{"y": {1}}},
		"hidden as embedded":     struct{ handle }{handle{1}},
		"hidden by its tag":      secret{1},
		"hidden, in an embedded": struct{ *hidden }{&hidden{Amount: handle{1}}},
		"an error":               errors.New("x"),
		"a reader":               strings.NewReader("x"),
		"a number by value":      map[string]big.Int{"x": *big.NewInt(1)}, // whose MarshalJSON needs a pointer
	} {
		require.Empty(t, a.keyOf(a.ctx, "free", args), name)
	}
}

type (
	hidden struct {
		To     string
		Amount handle
	}
	secret struct {
		ID int `json:"-"`
	}
	partly struct {
		sync.Mutex
		ID    int
		state handle
		Cache handle `json:"-"`
		Next  *partly
		Any   any
	}
)

func TestArgumentsWithStateOfTheirOwn(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{Repeats: 100})
	for name, args := range map[string]any{
		"time":           time.Time{},
		"time within":    struct{ At time.Time }{},
		"number":         big.NewInt(1),
		"numbers":        []big.Int{*big.NewInt(1)},
		"address":        netip.IPv4Unspecified(),
		"partly hidden":  &partly{ID: 1, state: handle{1}, Next: &partly{}},
		"nothing":        struct{}{},
		"nothing within": []any{nil, struct{}{}, struct{ _ struct{} }{}},
		"bytes":          []byte("x"),
		"nil within":     struct{ *partly }{},
	} {
		require.NotEmpty(t, a.keyOf(a.ctx, "free", args), name)
	}
}

// equal compares two JSON values in the way that is plainly right.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, ok := b[key]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, _ := new(big.Rat).SetString(string(a))
		y, _ := new(big.Rat).SetString(string(b))
		return x.Cmp(y) == 0
	}
	return a == b
}

var (
	longExponent = regexp.MustCompile(`[eE][-+]?0*[0-9]{4}`)
	unicode      = regexp.MustCompile(`(?i)\\u(d[89a-f]|fffd)`)
)

func FuzzCanonical(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1,"b":[2,null]}`, `{"b":[2.0,null],"a":1e0}`},
		{`{"a":null}`, `{}`},
		{`9007199254740993`, `9007199254740992`},
		{`[-0,100,"\u0061"]`, `[0,1e2,"a"]`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`1E+400`, `1e400`},
		{`"\\u0061"`, `"\u005cu0061"`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		a := newAgent(t, toolset.Config{}, toolset.Limits{Repeats: 100})
		decode := func(text string) (v any, ok bool) {
			if !utf8.ValidString(text) || longExponent.MatchString(text) || unicode.MatchString(text) {
				return nil, false
			}
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			err := d.Decode(&v)
			_, more := d.Token()
			return v, err == nil && more == io.EOF
		}
		v, ok := decode(x)
		w, okToo := decode(y)
		if !ok || !okToo {
			return
		}
		kx, ky := a.keyOf(a.ctx, "free", json.RawMessage(x)), a.keyOf(a.ctx, "free", json.RawMessage(y))
		if kx == "" || ky == "" { // only for duplicates
			require.True(t, duplicates(x) || duplicates(y))
			return
		}
		require.Equal(t, equal(v, w), kx == ky, "%s %s", x, y)

		// As another encoder would have written it.
		again, err := json.MarshalIndent(v, "", " ")
		require.NoError(t, err)
		require.Equal(t, kx, a.keyOf(a.ctx, "free", json.RawMessage(again)))
	})
}

// duplicates reports whether an object in text has a key twice: then it has more colons
// outside of strings than what is left after decoding.
func duplicates(text string) bool {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return false
	}
	again, _ := json.Marshal(v)
	return colons([]byte(text)) != colons(again)
}

var stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func colons(text []byte) int { return bytes.Count(stringLiteral.ReplaceAll(text, nil), []byte(":")) }
