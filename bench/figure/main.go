// Command figure draws results/micro.json and results/outage.json, which ./micro -save and
// ./outage -save have written, as figure.svg for the README.
//
//	go run ./figure
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
)

// bar is one bar of a panel.
type bar struct {
	name  string
	value float64
}

// panel is one row of bars with a title, on a logarithmic scale if their lengths differ by more than
// a hundredfold.
type panel struct {
	title string
	unit  string
	bars  []bar
}

const own = "toolcircuit"

// The peers that are drawn: each in the form with which this library's own is best compared.
var (
	microRows  = []string{own, "gobreaker", "failsafe-go permit", "eapache", "rubyist", "go-zero", "hystrix-go"}
	outageRows = []string{own, "gobreaker", "failsafe-go", "eapache advised", "rubyist consecutive", "go-zero", "backoff alone", "none"}
)

func main() {
	if err := draw(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw() error {
	var micro struct {
		Cells map[string]map[string]struct{ Alone, Crowd float64 }
	}
	if err := read("results/micro.json", &micro); err != nil {
		return err
	}
	var outage struct {
		Policies []struct {
			Name                string
			Wasted, Lost, Turns struct{ Mean float64 }
		}
	}
	if err := read("results/outage.json", &outage); err != nil {
		return err
	}
	closed := panel{title: "a healthy call, 32 goroutines", unit: "ns"}
	refused := panel{title: "a refused call, 32 goroutines", unit: "ns"}
	for _, name := range microRows {
		closed.bars = append(closed.bars, bar{name, micro.Cells[name]["closed"].Crowd})
		refused.bars = append(refused.bars, bar{name, micro.Cells[name]["refused"].Crowd})
	}
	turns := panel{title: "model turns burned in outages", unit: "turns"}
	wasted := panel{title: "calls wasted on a sick dependency", unit: "calls"}
	lost := panel{title: "calls that would have worked, not made", unit: "calls"}
	for _, name := range outageRows {
		for _, p := range outage.Policies {
			if p.Name == name {
				turns.bars = append(turns.bars, bar{name, p.Turns.Mean})
				wasted.bars = append(wasted.bars, bar{name, p.Wasted.Mean})
				lost.bars = append(lost.bars, bar{name, p.Lost.Mean})
			}
		}
	}
	return os.WriteFile("figure.svg", []byte(svg([]panel{closed, refused, turns, wasted, lost})), 0o644)
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// The measures of the drawing, in pixels.
const (
	width  = 720
	left   = 170 // where bars begin
	right  = 90  // room for a figure
	line   = 20
	header = 34
	gap    = 14
)

// svg returns the panels one under another. Colors suit a light and a dark page.
func svg(panels []panel) string {
	var b strings.Builder
	y := gap
	for _, p := range panels {
		logarithmic := p.spread() > 100
		title := p.title
		if logarithmic {
			title += " (logarithmic)"
		}
		fmt.Fprintf(&b, `<text x="0" y="%d" class="title">%s</text>`+"\n", y+16, title)
		y += header
		for _, bar := range p.bars {
			class := "peer"
			if bar.name == own {
				class = "own"
			}
			length := p.share(bar.value, logarithmic) * (width - left - right)
			fmt.Fprintf(&b, `<text x="%d" y="%d" class="name">%s</text>`+"\n", left-8, y+12, bar.name)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`+"\n", left, y, length, line-6, class)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s %s</text>`+"\n", left+length+6, y+12, figure(bar.value), p.unit)
			y += line
		}
		y += gap
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#777}.title{font-weight:bold}.name{text-anchor:end}.own{fill:#2a7}.peer{fill:#99a}</style>
%s</svg>
`, width, y, b.String())
}

// spread is the longest bar over the shortest.
func (p panel) spread() float64 {
	least, most := math.Inf(1), 0.0
	for _, b := range p.bars {
		least, most = min(least, max(b.value, 1)), max(most, b.value)
	}
	return most / least
}

// share is the length of a bar, 1 for the longest.
func (p panel) share(value float64, logarithmic bool) float64 {
	most := 0.0
	for _, b := range p.bars {
		most = max(most, b.value)
	}
	if logarithmic {
		return math.Log1p(max(value, 0)) / math.Log1p(most)
	}
	return value / most
}

func figure(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	case v < 10_000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.0fk", v/1000)
}
