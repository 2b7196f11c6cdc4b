// Package repeat knows what one run of an agent has done before: which calls are the same, which
// outcomes are the same, and which call would only repeat what is known.
//
// It is pure: time is an argument, nothing locks, and it runs code of others only through
// encoding/json and the methods of errors. It knows nothing of circuits: kinds are plain strings.
package repeat

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"io"
	"math"
	"strconv"
	"sync"
)

// Digest is a fingerprint. Two are equal only if they were made from equal values. The zero Digest
// equals nothing, not even another zero one.
type Digest [16]byte

// digestOf returns the fingerprint of a text.
func digestOf(text []byte) Digest {
	sum := sha256.Sum256(text)
	return Digest(sum[:])
}

// maxResult caps the encoded size of a result in bytes. A larger result equals nothing.
const maxResult = 16 << 20

// Arguments returns the fingerprint of the arguments of a call and of names, such as run and tool.
// It is the same for arguments that are equal as JSON values:
//
//   - the order of keys, white space and the way of writing a number or a character mean nothing
//   - a null member is not an absent one, and 2^53+1 is not 2^53
//
// It returns the zero Digest for arguments that equal nothing:
//
//   - what is no JSON or cannot be written as JSON, also because a method panics
//   - two members of one name, or half a surrogate pair, which decoders read differently (RFC
//     8259, sections 4 and 8.2)
//   - invalid UTF-8
//   - an exponent of more than 18 digits
//   - nesting deeper than maxDepth
//   - a struct that holds something that its JSON does not show
//
// A [json.RawMessage] is the text itself. An empty one is null: so a model may call a tool without
// parameters. Any other value is encoded first. The whole of the arguments counts, however large
// they are.
func Arguments(args any, names ...string) Digest {
	c := canons.Get().(*canon)
	defer canons.Put(c)
	c.out = c.out[:0]
	for _, name := range names {
		c.out = strconv.AppendQuote(c.out, name)
	}
	text, given := args.(json.RawMessage)
	if given = given && text != nil; !given {
		c.encoded.Reset()
		if opaque(args, math.MaxInt) || !encode(&c.encoded, args) {
			return Digest{}
		}
		text = c.encoded.Bytes()
	} else if len(bytes.Trim(text, " \t\r\n")) == 0 {
		text = []byte("null")
	}
	if !c.read(text, given) {
		return Digest{}
	}
	return digestOf(c.out)
}

// Result returns the fingerprint of what a call returned. Equal values of one Go type have equal
// fingerprints. Values that are only written differently, such as two raw texts, have different
// ones. At worst that lets a call run once more.
//
// It returns the zero Digest for what equals nothing: nil, what cannot be written as JSON, what is
// more than maxResult bytes as JSON, and what hides a part of itself as in [Arguments].
func Result(v any) Digest {
	switch v := v.(type) {
	case nil:
		return Digest{}
	case json.RawMessage:
		return raw(v)
	case []byte:
		return raw(v)
	}
	if opaque(v, maxResult) {
		return Digest{}
	}
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.size = 0
	h.hash.Reset()
	if !encode(h, v) || h.size > maxResult {
		return Digest{}
	}
	return Digest(h.hash.Sum(h.sum[:0]))
}

// encode writes v as JSON. It reports whether it could: false also if a MarshalJSON panics.
func encode(w io.Writer, v any) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v) == nil
}

// Text returns the fingerprint of the text of an error, or zero if its method panics.
func Text(err error) (d Digest) {
	defer func() {
		recover() // d is still zero
	}()
	return digestOf([]byte(err.Error()))
}

// raw returns the fingerprint of a result that is text. Its tag keeps it apart from JSON.
func raw(text []byte) Digest {
	if len(text) > maxResult {
		return Digest{}
	}
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.hash.Reset()
	h.hash.Write(rawTag)
	h.hash.Write(text)
	return Digest(h.hash.Sum(h.sum[:0]))
}

var rawTag = []byte{0}

// hasher is a hash that JSON is encoded into. It hashes at most maxResult bytes.
type hasher struct {
	hash hash.Hash
	size int
	sum  [sha256.Size]byte
}

// Write never fails.
func (h *hasher) Write(text []byte) (int, error) {
	if h.size += len(text); h.size <= maxResult {
		h.hash.Write(text)
	}
	return len(text), nil
}

var (
	hashers = sync.Pool{New: func() any { return &hasher{hash: sha256.New()} }}
	canons  = sync.Pool{New: func() any { return new(canon) }}
)
