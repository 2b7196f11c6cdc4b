package repeat

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxDepth = 10_000 // levels of nesting, as in encoding/json
	maxPlain = 256    // bytes of an object above which its hash replaces it
)

// canon writes, in one pass over a JSON text, the same text for all JSON texts of equal values.
// That text is no JSON: a number is its digits and a power of ten, each member ends with a comma,
// and a large object is its hash. So sorting the members of nested objects never moves the same
// bytes again and again.
type canon struct {
	text    []byte // to read
	given   bool   // text comes from outside, not from encoding/json
	at      int    // in text
	out     []byte
	members []member // of the objects that are being read
	sorted  []byte
	encoded bytes.Buffer
}

// member is a member of an object, as indices of out. Its key is out[from:value].
type member struct{ from, value, end int }

// read appends the canonical form of text to out. It reports whether there is one.
func (c *canon) read(text []byte, given bool) bool {
	c.text, c.given, c.at, c.members = text, given, 0, c.members[:0]
	defer func() { c.text = nil }()
	if !utf8.Valid(text) || !c.value(0) {
		return false
	}
	c.space()
	return c.at == len(c.text)
}

func (c *canon) space() {
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case ' ', '\n', '\r', '\t':
			c.at++
		default:
			return
		}
	}
}

// next skips white space and reports whether b comes next. If so, it skips b.
func (c *canon) next(b byte) bool {
	c.space()
	if c.at == len(c.text) || c.text[c.at] != b {
		return false
	}
	c.at++
	return true
}

func (c *canon) value(depth int) bool {
	c.space()
	if c.at == len(c.text) || depth > maxDepth {
		return false
	}
	switch c.text[c.at] {
	case '{':
		return c.object(depth + 1)
	case '[':
		return c.array(depth + 1)
	case '"':
		return c.string()
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

func (c *canon) literal(word string) bool {
	if !bytes.HasPrefix(c.text[c.at:], []byte(word)) {
		return false
	}
	c.at += len(word)
	c.out = append(c.out, word...)
	return true
}

func (c *canon) array(depth int) bool {
	c.at++
	c.out = append(c.out, '[')
	for first := true; !c.next(']'); first = false {
		if !first && !c.next(',') || !c.value(depth) {
			return false
		}
		c.out = append(c.out, ',')
	}
	c.out = append(c.out, ']')
	return true
}

func (c *canon) object(depth int) bool {
	c.at++
	start, first := len(c.out), len(c.members)
	c.out = append(c.out, '{')
	ordered := true
	for !c.next('}') {
		if len(c.members) > first && !c.next(',') {
			return false
		}
		m := member{from: len(c.out)}
		if c.space(); c.at == len(c.text) || c.text[c.at] != '"' || !c.string() || !c.next(':') {
			return false
		}
		m.value = len(c.out)
		if !c.value(depth) {
			return false
		}
		c.out = append(c.out, ',')
		m.end = len(c.out)
		if n := len(c.members); n > first {
			order := c.order(c.members[n-1], m)
			if order == 0 {
				return false
			}
			ordered = ordered && order < 0
		}
		c.members = append(c.members, m)
	}
	if !ordered && !c.sort(c.members[first:]) {
		return false
	}
	c.members = c.members[:first]
	c.out = append(c.out, '}')
	if len(c.out)-start > maxPlain {
		sum := sha256.Sum256(c.out[start:])
		c.out = append(append(c.out[:start], '#'), sum[:]...)
	}
	return true
}

// order compares two members by key.
func (c *canon) order(a, b member) int {
	return bytes.Compare(c.out[a.from:a.value], c.out[b.from:b.value])
}

// sort sorts members, which are the end of out, by key. It returns false if two keys are equal.
func (c *canon) sort(members []member) bool {
	start := members[0].from
	slices.SortFunc(members, c.order)
	c.sorted = c.sorted[:0]
	for i, m := range members {
		if i > 0 && c.order(members[i-1], m) == 0 {
			return false
		}
		c.sorted = append(c.sorted, c.out[m.from:m.end]...)
	}
	copy(c.out[start:], c.sorted)
	return true
}

// plain has the bytes that stand for themselves in a JSON string.
var plain = func() (p [256]bool) {
	for b := range p {
		p[b] = b >= ' ' && b != '"' && b != '\\'
	}
	return p
}()

// string reads a string whose quote comes next. It keeps each character as it is, if JSON can.
func (c *canon) string() bool {
	c.at++
	c.out = append(c.out, '"')
	for {
		end := c.at
		for end < len(c.text) && plain[c.text[end]] {
			end++
		}
		c.out = append(c.out, c.text[c.at:end]...)
		if c.at = end; c.at == len(c.text) {
			return false
		}
		switch c.text[c.at] {
		case '"':
			c.at++
			c.out = append(c.out, '"')
			return true
		case '\\':
			if !c.escape() {
				return false
			}
		default: // a control character
			return false
		}
	}
}

// escape reads an escape sequence whose backslash comes next.
func (c *canon) escape() bool {
	if c.at+1 == len(c.text) {
		return false
	}
	var r rune
	switch b := c.text[c.at+1]; b {
	case '"', '\\', '/':
		r = rune(b)
	case 'b':
		r = '\b'
	case 'f':
		r = '\f'
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'u':
		return c.unicode()
	default:
		return false
	}
	c.at += 2
	c.rune(r)
	return true
}

// unicode reads one \uXXXX, or two that are a surrogate pair. In encoded text \uFFFD stands for
// bytes that were not UTF-8, so it has no canonical form. The encoder never escapes the character
// itself.
func (c *canon) unicode() bool {
	r, ok := c.hex()
	if !ok || !c.given && r == utf8.RuneError {
		return false
	}
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(c.text[c.at:], []byte(`\u`)) {
			return false
		}
		low, ok := c.hex()
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return false
		}
	}
	c.rune(r)
	return true
}

// hex reads one \uXXXX.
func (c *canon) hex() (r rune, ok bool) {
	if len(c.text)-c.at < 6 {
		return 0, false
	}
	for _, b := range c.text[c.at+2 : c.at+6] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	c.at += 6
	return r, true
}

// rune appends a character of a string.
func (c *canon) rune(r rune) {
	switch {
	case r == '"' || r == '\\':
		c.out = append(c.out, '\\', byte(r))
	case r < ' ':
		c.out = append(c.out, '\\', 'u', byte(r))
	default:
		c.out = utf8.AppendRune(c.out, r)
	}
}

// number reads a number. It writes the digits, without zeros at either end, and a power of ten:
// 100, 1e2 and 1.0E+02 are 1e2.
func (c *canon) number() bool {
	start := len(c.out)
	if c.text[c.at] == '-' {
		c.at++
		c.out = append(c.out, '-')
	}
	digits := len(c.out)
	whole := c.digits()
	if whole == 0 || whole > 1 && c.out[digits] == '0' {
		return false
	}
	fraction := 0
	if c.at < len(c.text) && c.text[c.at] == '.' {
		c.at++
		if fraction = c.digits(); fraction == 0 {
			return false
		}
	}
	exponent, ok := c.exponent()
	if !ok {
		return false
	}
	zeros, end := digits, len(c.out)
	for zeros < end && c.out[zeros] == '0' {
		zeros++
	}
	if zeros == end {
		c.out = append(c.out[:start], '0')
		return true
	}
	power := -int64(fraction)
	for ; c.out[end-1] == '0'; end-- {
		power++
	}
	if exponent != nil {
		n, err := strconv.ParseInt(string(exponent), 10, 63) // room for what is added
		if err != nil {
			return false
		}
		power += n
	}
	c.out = append(append(c.out[:digits], c.out[zeros:end]...), 'e')
	c.out = strconv.AppendInt(c.out, power, 10)
	return true
}

// digits copies the digits that come next and returns how many.
func (c *canon) digits() (n int) {
	end := c.at
	for end < len(c.text) && '0' <= c.text[end] && c.text[end] <= '9' {
		end++
	}
	n = end - c.at
	c.out = append(c.out, c.text[c.at:end]...)
	c.at = end
	return n
}

// exponent reads the exponent of a number, nil if it has none.
func (c *canon) exponent() (text []byte, ok bool) {
	if c.at == len(c.text) || c.text[c.at]|0x20 != 'e' {
		return nil, true
	}
	c.at++
	start, kept := c.at, len(c.out)
	if c.at < len(c.text) && (c.text[c.at] == '+' || c.text[c.at] == '-') {
		c.at++
	}
	ok = c.digits() > 0
	c.out = c.out[:kept]
	return c.text[start:c.at], ok
}
