package shape

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hints are what the header of a response says about when to come back.
type Hints struct {
	Wait  time.Duration // the longest wait asked for, 0 if none
	Spent bool          // the rate limit has no calls left
	Reset time.Duration // until it has calls again, 0 if unknown
}

// For returns the wait that a response with this status code asks for.
func (h Hints) For(code int) time.Duration {
	if h.Spent && (code == http.StatusForbidden || code == http.StatusTooManyRequests) {
		return max(h.Wait, h.Reset)
	}
	return h.Wait
}

// ReadHints reads h, which may be nil. Names are compared as RFC 9110 section 5.1 wants, so a map
// that no http.Header method filled works too.
func ReadHints(h http.Header) (found Hints) {
	var dates, untils, resets []string
	for key, lines := range h {
		switch len(key) { // most keys are none of these
		case len("Date"):
			if strings.EqualFold(key, "Date") {
				dates = append(dates, lines...)
			}
		case len("Retry-After"):
			if strings.EqualFold(key, "Retry-After") {
				for _, line := range lines {
					if d, ok := digits(line, time.Second); ok {
						found.Wait = max(found.Wait, d)
					} else {
						untils = append(untils, line)
					}
				}
			}
		case len("Retry-After-Ms"), len("X-Ms-Retry-After-Ms"):
			if strings.EqualFold(key, "Retry-After-Ms") || strings.EqualFold(key, "X-Ms-Retry-After-Ms") {
				found.milliseconds(lines)
			}
		case len("X-RateLimit-Remaining"):
			if strings.EqualFold(key, "X-RateLimit-Remaining") {
				found.Spent = found.Spent || slices.ContainsFunc(lines, func(line string) bool { return trim(line) == "0" })
			}
		case len("X-RateLimit-Reset"): // and X-Amz-Retry-After
			if strings.EqualFold(key, "X-RateLimit-Reset") {
				resets = append(resets, lines...)
			} else if strings.EqualFold(key, "X-Amz-Retry-After") {
				found.milliseconds(lines)
			}
		}
	}
	if len(untils) == 0 && len(resets) == 0 {
		return found
	}
	for _, date := range dates {
		sent, err := http.ParseTime(trim(date))
		if err != nil {
			continue
		}
		for _, until := range untils {
			if t, err := http.ParseTime(trim(until)); err == nil {
				found.Wait = max(found.Wait, t.Sub(sent))
			}
		}
		for _, reset := range resets {
			if d, ok := digits(reset, time.Second); ok {
				found.Reset = max(found.Reset, time.Unix(int64(d/time.Second), 0).Sub(sent))
			}
		}
	}
	return found
}

// milliseconds adds waits in milliseconds.
func (h *Hints) milliseconds(lines []string) {
	for _, line := range lines {
		d, _ := digits(line, time.Millisecond)
		h.Wait = max(h.Wait, d)
	}
}

// digits returns the duration that text gives as a number of units. A number that is too large
// gives the longest duration. ok is false if text has anything but digits.
func digits(text string, unit time.Duration) (d time.Duration, ok bool) {
	text = trim(text)
	if strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseUint(text, 10, 64) // out of range gives the largest number, "" gives 0
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

// trim removes what may stand around the value of a header.
func trim(value string) string { return strings.Trim(value, " \t") }
