package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSVG(t *testing.T) {
	text := svg([]panel{
		{title: "linear", unit: "ns", bars: []bar{{own, 1}, {"half", 5}, {"all", 10}}},
		{title: "steep", unit: "ns", bars: []bar{{own, 1}, {"far", 100_000}}},
	})
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, text, `width="230.0" height="14" class="peer"/>`)
	require.Contains(t, text, `width="460.0" height="14" class="peer"/>`)
	require.Contains(t, text, `width="46.0" height="14" class="own"/>`)
	require.Contains(t, text, "steep (logarithmic)")
	require.NotContains(t, text, "linear (logarithmic)")
	require.Contains(t, text, "100k ns")
}
