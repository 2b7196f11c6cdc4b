// Package errtree walks through an error and what it wraps. Methods of errors may panic, and an
// Unwrap method may lead back to an outer error.
package errtree

import (
	"iter"
	"reflect"
	"slices"
)

// MaxNodes caps the errors looked at in one tree, so that an Unwrap method that leads back to an
// outer error costs time but does not hang the program.
const MaxNodes = 1000

// Unwrap returns what err wraps, one error or several, without nils. Unlike errors.Is it leaves
// out typed nils, whose methods would panic.
func Unwrap(err error) (several []error, one error) {
	defer func() {
		if recover() != nil { // in a method of err
			several, one = nil, nil
		}
	}()
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if one = e.Unwrap(); IsNil(one) {
			one = nil
		}
	case interface{ Unwrap() []error }:
		several = e.Unwrap()
		if slices.ContainsFunc(several, func(err error) bool { return IsNil(err) }) {
			several = slices.DeleteFunc(slices.Clone(several), func(err error) bool { return IsNil(err) })
		}
	}
	return several, one
}

// All ranges over err and all that it wraps, in the order of [errors.Is]: an error before those
// inside it. It ends after MaxNodes errors.
func All(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		left := MaxNodes
		walk(err, &left, yield)
	}
}

// walk is the recursion of [All]. It returns false to end the whole walk.
func walk(err error, left *int, yield func(error) bool) bool {
	if IsNil(err) {
		return true
	}
	if *left--; *left < 0 || !yield(err) {
		return false
	}
	several, one := Unwrap(err)
	for _, err := range several {
		if !walk(err, left, yield) {
			return false
		}
	}
	return walk(one, left, yield)
}

// IsNil reports whether v is nil or an interface that holds a nil pointer, map, slice, func or
// chan.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// As returns err itself, not what it wraps, as an E, by its type or by its As method. An As method
// that panics says no.
func As[E error](err error) (target E, ok bool) {
	if target, ok = err.(E); ok {
		return target, true
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	e, able := err.(interface{ As(any) bool })
	return target, able && e.As(&target) && !IsNil(target)
}
