package repeat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

var none repeat.Digest

func TestEqualArguments(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, equal := range [][]any{
		{json.RawMessage(`{"a":1,"b":2}`), json.RawMessage("{ \"b\" : 2,\n\"a\"\t:\r1 } "), map[string]int{"b": 2, "a": 1}},
		{json.RawMessage(`{"x":{"a":[1,{"c":1,"b":2}]}}`), json.RawMessage(`{"x":{"a":[1,{"b":2,"c":1}]}}`)},
		{json.RawMessage(`{"c":1,"a":2,"b":3}`), json.RawMessage(`{"b":3,"\u0061":2,"c":1}`)},
		{json.RawMessage(`{"b":{"d":"` + long + `","c":1},"a":2}`), json.RawMessage(`{"a":2,"b":{"c":1,"d":"` + long + `"}}`)},
		{json.RawMessage(`1`), json.RawMessage(`1.0`), json.RawMessage(`10e-1`), json.RawMessage(`0.1E+1`), 1, 1.0, uint8(1)},
		{json.RawMessage(`100`), json.RawMessage(`1e2`), json.RawMessage(`1E+02`), json.RawMessage(`100.000`)},
		{json.RawMessage(`0`), json.RawMessage(`-0`), json.RawMessage(`0.00`), json.RawMessage(`-0e99999999999999999999`), 0},
		{json.RawMessage(`0.00120`), json.RawMessage(`12e-4`), json.RawMessage(`1.2e-3`)},
		{json.RawMessage(`1e400`), json.RawMessage(`1E+400`), json.RawMessage(`10e399`), json.RawMessage(`0.01e402`)},
		{json.RawMessage(`1` + strings.Repeat("0", 100_000)), json.RawMessage(`1e100000`)},
		{json.RawMessage(`9007199254740993`), int64(9007199254740993), json.RawMessage(`9007199254740993.0`)},
		{json.RawMessage(`"é/<"`), json.RawMessage(`"\u00e9\/\u003c"`), "é/<"},
		{json.RawMessage(`"\"\\\b\f\n\r\t\u0001"`), json.RawMessage(`"\u0022\u005c\u0008\u000C\u000a\u000D\u0009\u0001"`), "\"\\\b\f\n\r\t\x01"},
		{json.RawMessage(`"😀"`), json.RawMessage(`"\ud83d\ude00"`), json.RawMessage(`"\uD83D\uDE00"`), "😀"},
		{json.RawMessage(`"\ufffd"`), json.RawMessage("\"\ufffd\""), "\ufffd"},
		{`\ufffd`, json.RawMessage(`"\\ufffd"`)},
		{"\u2028", json.RawMessage(`"\u2028"`)},
		{nil, json.RawMessage(nil), json.RawMessage(`null`), (*int)(nil), json.RawMessage(``), json.RawMessage(" \n")},
		{map[string]any{}, json.RawMessage(`{}`), struct{}{}},
		{[]any{}, json.RawMessage(`[]`)},
	} {
		want := repeat.Arguments(equal[0])
		require.NotEqual(t, none, want, "%s", equal[0])
		for _, args := range equal[1:] {
			require.Equal(t, want, repeat.Arguments(args), "%s and %s", equal[0], args)
		}
	}
}

func TestDifferentArguments(t *testing.T) {
	seen := map[repeat.Digest]string{}
	long := strings.Repeat("x", 1000)
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `2`, `1e1`, `1e400`, `1e401`, `1e-400`, `-1e400`,
		`9007199254740992`, `9007199254740993`, `0.1`, `0.10000000000000001`, `1.01`, `10.1`, `101`,
		`""`, `"0"`, `"1"`, `"null"`, `"a"`, `"A"`, `"\u00e9"`, `"e\u0301"`, `" "`, `"a\u0000"`, `"\\ufffd"`, `"\ufffd"`,
		`"\""`, `"\\"`, `"\\\""`, `"\u0001"`, `"u\u0001"`, `"\\u0001"`,
		`[]`, `[[]]`, `[null]`, `[1,2]`, `[2,1]`, `[12]`, `["1,2"]`, `[[1],2]`, `[1,[2]]`,
		`{}`, `{"a":null}`, `{"a":1}`, `{"a":"1"}`, `{"a":[1]}`, `{"a":1,"b":null}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"":1}`,
		`{"a":"` + long + `"}`, `{"b":"` + long + `"}`, `{"a":{"a":"` + long + `"}}`, `{"a":"` + long + `x"}`,
	} {
		d := repeat.Arguments(json.RawMessage(text))
		require.NotEqual(t, none, d, text)
		require.Empty(t, seen[d], text)
		seen[d] = text
	}
}

func TestNamesKeepCallsApart(t *testing.T) {
	seen := map[repeat.Digest]bool{}
	for _, names := range [][]string{nil, {"run"}, {"run", "tool"}, {"runtool"}, {"run", "", "tool"}, {"", "run", "tool"}, {`run""tool`}} {
		d := repeat.Arguments(1, names...)
		require.False(t, seen[d], "%q", names)
		seen[d] = true
	}
}

// panicky cannot be written as JSON.
type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error) { panic("json") }

// failing is what toolset.Unknown looks like.
type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, errors.New("unknown") }

type (
	handle struct{ rows int }
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
	loop    struct{ Next *loop }
	numbers struct{ N big.Int }
)

// Structs with an embedded field that writes itself as JSON, and with it the whole struct.
type (
	label   struct{ text string }
	dated   struct{ time.Time }
	stamped struct { // is written as its Time
		time.Time
		Amount int
	}
	labelled struct { // is written as its label
		*label
		Amount int
	}
	deeper struct{ stamped }
	owned  struct { // is written as itself
		time.Time
		Amount int
	}
	option[T any] struct {
		dated
		value T
	}
)

func (l label) MarshalText() ([]byte, error)      { return []byte(l.text), nil }
func (o owned) MarshalJSON() ([]byte, error)      { return json.Marshal(o.Amount) }
func (o *option[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.value) }

// deep returns a value that is nested so many times.
func deep(levels int) (v any) {
	for range levels {
		v = []any{v}
	}
	return v
}

// opaque are values that equal nothing, as arguments and as results.
func opaque() map[string]any {
	self := map[string]any{}
	self["self"] = self
	ring := &loop{}
	ring.Next = ring
	list := &loop{}
	for range 1_000_000 {
		list = &loop{list}
	}
	return map[string]any{
		"Unknown":                failing{},
		"Unknown within":         map[string]any{"to": "shop", "amount": failing{}},
		"NaN":                    math.NaN(),
		"Inf":                    []float64{math.Inf(-1)},
		"channel":                map[string]any{"c": make(chan int)},
		"a function":             func() {},
		"a loop":                 self,
		"a ring":                 ring,
		"too long a list":        list,
		"too deep":               deep(1_000_000),
		"panics":                 panicky{},
		"hidden":                 handle{1},
		"hidden, pointed to":     &handle{1},
		"hidden within":          hidden{To: "shop", Amount: handle{1}},
		"hidden in a list":       []any{1, []handle{{1}}},
		"hidden in an array":     [1]handle{{1}},
		"hidden in a map":        map[string]any{"x": map[string]handle{"y": {1}}},
		"hidden as embedded":     struct{ handle }{handle{1}},
		"hidden by its tag":      secret{1},
		"hidden, in an embedded": struct{ *hidden }{&hidden{Amount: handle{1}}},
		"hidden far away":        &partly{Next: &partly{Any: []any{&handle{1}}}},
		"an error":               errors.New("x"),
		"written as a part":      stamped{Amount: 1},
		"and pointed to":         &stamped{Amount: 1},
		"and in a list":          []stamped{{Amount: 1}},
		"and in a field":         struct{ S *stamped }{&stamped{Amount: 1}},
		"and embedded":           deeper{stamped{Amount: 1}},
		"written as a pointer":   labelled{&label{"x"}, 1},
		"a reader":               strings.NewReader("x"),
		"a number by value":      map[string]big.Int{"x": *big.NewInt(1)}, // whose MarshalJSON needs a pointer
		"a field by value":       numbers{*big.NewInt(1)},
	}
}

func TestArgumentsThatEqualNothing(t *testing.T) {
	for name, args := range opaque() {
		require.Equal(t, none, repeat.Arguments(args), name)
	}
	require.Equal(t, none, repeat.Arguments("a\xff"), "invalid UTF-8")
	require.Equal(t, none, repeat.Arguments(map[string]int{"a\xff": 1}), "invalid UTF-8, as key")
	for _, text := range []string{
		"\v", "\u00a0", `{`, `1 2`, `[1,]`, `[,]`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`, `tru`, `truee`, `nul`, `01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `-x`,
		`"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `]`, `}`, `[}`, `{]`, `[1 2]`, `{"a":1 "b":2}`,
		`{"a":1,"b":1,"a":1}`, `[{"a":1,"\u0061":2}]`, `{"b":1,"a":1,"b":1}`, `{"a":1,"a":1}`,
		"\"a\xff\"", `"\ud83d"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\ud83d\ud83d"`, `"\ud83dx"`, `"\ud83d\n"`,
		`1e9999999999999999999`, strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000), strings.Repeat(`{"a":`, 1_000_000),
	} {
		require.Equal(t, none, repeat.Arguments(json.RawMessage(text)), "%.80s", text)
	}
}

func TestValuesWithStateOfTheirOwn(t *testing.T) {
	for name, v := range map[string]any{
		"time":                time.Time{},
		"time within":         struct{ At time.Time }{},
		"time alone":          dated{},
		"time and a method":   owned{},
		"generic":             &option[int]{},
		"number":              big.NewInt(1),
		"numbers":             []big.Int{*big.NewInt(1)},
		"a field pointed to":  &numbers{*big.NewInt(1)},
		"through a pointer":   struct{ *numbers }{&numbers{*big.NewInt(1)}},
		"address":             netip.IPv4Unspecified(),
		"partly hidden":       &partly{ID: 1, state: handle{1}, Next: &partly{}},
		"nothing":             struct{}{},
		"nothing within":      []any{nil, struct{}{}, struct{ _ struct{} }{}},
		"empty":               []handle{},
		"empty array":         [0]handle{},
		"nil within":          struct{ *partly }{},
		"nil handle":          struct{ H *handle }{},
		"deep":                deep(9000),
		"map of structs":      map[int]partly{1: {ID: 1}},
		"interfaces":          []fmt.Stringer{time.Second},
		"pointer in an any":   []any{&partly{ID: 1}},
		"array":               [2][]string{{"x"}, nil},
		"pointer to a RawMsg": &[]json.RawMessage{json.RawMessage(`{}`)}[0],
	} {
		require.NotEqual(t, none, repeat.Arguments(v), name)
		require.NotEqual(t, none, repeat.Result(v), name)
		require.Equal(t, repeat.Arguments(v), repeat.Arguments(v), name)
		require.Equal(t, repeat.Result(v), repeat.Result(v), name)
	}
}

func TestResults(t *testing.T) {
	for name, v := range opaque() {
		require.Equal(t, none, repeat.Result(v), name)
	}
	require.Equal(t, none, repeat.Result(nil))
	type row struct{ A, B int }
	require.Equal(t, repeat.Result(row{1, 2}), repeat.Result(row{1, 2}))
	require.Equal(t, repeat.Result(map[string]any{"a": 1, "b": 2}), repeat.Result(map[string]any{"b": 2, "a": 1}))
	require.NotEqual(t, repeat.Result(row{1, 2}), repeat.Result(row{1, 3}))
	require.Equal(t, repeat.Result([]byte("x")), repeat.Result([]byte("x")))
	require.NotEqual(t, repeat.Result([]byte("1")), repeat.Result(1))
	require.NotEqual(t, none, repeat.Result(json.RawMessage(`{`)), "raw bytes as they are")
	require.NotEqual(t, repeat.Result(json.RawMessage(`{"a":1}`)), repeat.Result(json.RawMessage(`{ "a":1}`)), "which errs towards letting a call run")
}

func TestLargeResultsEqualNothing(t *testing.T) {
	const most = 16 << 20
	text := bytes.Repeat([]byte{' '}, most+1)
	require.NotEqual(t, none, repeat.Result(text[1:]))
	require.Equal(t, none, repeat.Result(text))
	require.Equal(t, none, repeat.Result(string(text)))
	require.Equal(t, none, repeat.Result(struct{ Rows []int }{make([]int, most)}))
	require.Equal(t, none, repeat.Result(map[string]any{"rows": [][]string{{string(text)}}}))
	require.Equal(t, none, repeat.Result(strings.Repeat("\x01", most/5)), "what it encodes to counts")
	require.Equal(t, none, repeat.Result(json.RawMessage(text)))
	require.NotEqual(t, none, repeat.Arguments(string(text)), "arguments have no cap")
}

// A result that is far too large is not even encoded.
func TestLargeResultsCostNothing(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	for name, v := range map[string]any{
		"strings": slices.Repeat([]string{text}, 1000),
		"decoded": map[string]any{"rows": slices.Repeat([]any{text}, 1000)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.Equal(t, none, repeat.Result(v), name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

// sick panics when it is read, exiting ends the goroutine.
type (
	sick    struct{}
	exiting struct{}
)

func (sick) Error() string                       { panic("error") }
func (exiting) Error() string                    { runtime.Goexit(); return "" }
func (exiting) MarshalJSON() (_ []byte, _ error) { runtime.Goexit(); return }

func TestTexts(t *testing.T) {
	require.Equal(t, repeat.Text(errors.New("x")), repeat.Text(fmt.Errorf("%s", "x")))
	require.NotEqual(t, repeat.Text(errors.New("x")), repeat.Text(errors.New("y")))
	require.Equal(t, none, repeat.Text(sick{}))
}

func TestCodeOfOthersThatEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := repeat.Arguments(map[string]int{"a": 1})
		for range 100 {
			var running sync.WaitGroup
			running.Go(func() { repeat.Arguments(exiting{}) })
			running.Go(func() { repeat.Result(exiting{}) })
			running.Go(func() { repeat.Text(exiting{}) })
			running.Go(func() { repeat.Arguments(panicky{}) })
			running.Wait()
			require.Equal(t, want, repeat.Arguments(map[string]int{"a": 1}))
		}
	})
}

func TestFingerprintsAtTheSameTime(t *testing.T) {
	type fresh struct { // a type that nobody has seen
		List []struct{ A any }
		Next *partly
	}
	v := fresh{List: []struct{ A any }{{1}, {"x"}}, Next: &partly{ID: 2}}
	synctest.Test(t, func(t *testing.T) {
		got := make([]repeat.Digest, 32)
		var running sync.WaitGroup
		for i := range got {
			running.Go(func() { got[i] = repeat.Arguments(v) })
		}
		running.Wait()
		for _, d := range got {
			require.Equal(t, got[0], d)
			require.NotEqual(t, none, d)
		}
	})
}

// Objects that are nested and out of order do not cost the square of their size. It would take
// minutes.
func TestNestedObjectsOutOfOrder(t *testing.T) {
	text := strings.Repeat(`{"b":"`+strings.Repeat("x", 1000)+`","c":`, 9000) + `1` + strings.Repeat(`,"a":1}`, 9000)
	require.NotEqual(t, none, repeat.Arguments(json.RawMessage(text)))
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
	surrogate    = regexp.MustCompile(`(?i)\\ud[89a-f]`)
)

func FuzzArguments(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1,"b":[2,null]}`, `{"b":[2.0,null],"a":1e0}`},
		{`{"a":null}`, `{}`},
		{`9007199254740993`, `9007199254740992`},
		{`[-0,100,"\u0061"]`, `[0,1e2,"a"]`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`1E+400`, `1e400`},
		{``, ` null `},
		{`"\\u0061"`, `"\u005cu0061"`},
		{`{"c":{"b":"\ufffd","a":0.010},"b":true}`, `{"b":true,"c":{"a":1e-2,"b":"�"}}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		dx, dy := repeat.Arguments(json.RawMessage(x)), repeat.Arguments(json.RawMessage(y))
		for _, text := range []*string{&x, &y} {
			if strings.Trim(*text, " \t\r\n") == "" {
				*text = "null"
			}
		}
		v, simple := decode(x)
		if !json.Valid([]byte(x)) || !utf8.ValidString(x) || duplicates(x) {
			require.Equal(t, none, dx, "%s", x)
			return
		}
		if !simple {
			return
		}
		require.NotEqual(t, none, dx, "%s", x)
		if w, simple := decode(y); simple && !duplicates(y) {
			require.Equal(t, equal(v, w), dx == dy, "%s %s", x, y)
		}
		again, err := json.MarshalIndent(v, "", " ") // as another encoder would have written it
		require.NoError(t, err)
		require.Equal(t, dx, repeat.Arguments(json.RawMessage(again)), "%s", again)
		require.Equal(t, dx, repeat.Arguments(v), "%s", again)
	})
}

// decode reads a text for which encoding/json and math/big are a model.
func decode(text string) (v any, simple bool) {
	if !utf8.ValidString(text) || longExponent.MatchString(text) || surrogate.MatchString(text) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(&v)
	_, more := d.Token()
	return v, err == nil && more == io.EOF
}

// duplicates reports whether an object in a valid text has a key twice: then it has more colons
// outside of strings than what is left after decoding.
func duplicates(text string) bool {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return false
	}
	again, _ := json.Marshal(v)
	return colons(text) != colons(string(again))
}

var stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func colons(text string) int { return strings.Count(stringLiteral.ReplaceAllString(text, ""), ":") }
