package promtest

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dashboard is the part of grafana.json that says what is queried.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name       string
			Definition string
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	file, err := os.ReadFile("../grafana.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(file, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// queries returns all that the dashboard asks for. The labels of a legend are in braces.
func (d dashboard) queries() (all []string) {
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, t.Expr)
			for _, label := range regexp.MustCompile(`\{\{(.*?)\}\}`).FindAllStringSubmatch(t.LegendFormat, -1) {
				all = append(all, label[1])
			}
		}
	}
	for _, v := range d.Templating.List {
		all = append(all, v.Definition)
	}
	return slices.DeleteFunc(all, func(q string) bool { return q == "" })
}

// words returns the names of metrics and labels in a query: what is no text, no range, no function
// and no aggregation.
func words(query string) (names []string) {
	query = regexp.MustCompile(`"[^"]*"|\[[^\]]*\]`).ReplaceAllString(query, " ")
	for _, m := range regexp.MustCompile(`([A-Za-z_]\w*)(\s*\(|\s+by\s*\()?`).FindAllStringSubmatch(query, -1) {
		if m[2] == "" && m[1] != "or" {
			names = append(names, m[1])
		}
	}
	return names
}

func TestWords(t *testing.T) {
	require.Equal(t,
		[]string{"le", "tool", "seconds_bucket", "kind", "other"},
		words(`histogram_quantile(0.95, sum by (le, tool) (rate(seconds_bucket{kind=~"$not_this"}[$__rate_interval]))) or other`))
}

// No two panels lie on one another, and the variables that queries use are there.
func TestDashboardLayout(t *testing.T) {
	d := readDashboard(t)
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID])
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Emptyf(t, taken[at], "%s", p.Title)
				taken[at] = p.Title
			}
		}
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, "$"+v.Name)
	}
	for _, q := range d.queries() {
		for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(q, -1) {
			if !strings.HasPrefix(v, "$__") {
				require.Contains(t, variables, v)
			}
		}
	}
}
