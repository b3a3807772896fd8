package dashboards

import (
	"bytes"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/monitoring/drawing"
)

// TestPictures draws each dashboard from its queries' results on the mixed fleet, and finds something in every panel.
// With UPDATE_PICTURES=1 it draws the whole recording, not only the last hour, and writes docs/images.
func TestPictures(t *testing.T) {
	update := os.Getenv("UPDATE_PICTURES") != ""
	over, compression := time.Hour, png.BestSpeed
	if update {
		over, compression = end.Sub(begin), png.BestCompression
	}
	storage := record(t, end.Add(-over), end, fleetOf(mixed, newSimulation(t, end.Sub(begin))))
	a := asker{engine: engine(), storage: storage, now: end, over: over, step: 2 * time.Minute, values: chosen}
	for _, name := range names {
		b, _ := read(t, name)
		a.values = maps.Clone(chosen)
		switch name {
		case "fleet":
			a.values["node"] = ".*"
		case "job":
			a.values["namespace"] = "search"
		}
		drawn, err := drawing.Draw(b, drawing.Span{From: end.Add(-over), To: end, Step: a.step}, a.series(t))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var file bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: compression}).Encode(&file, drawn); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, "docs/images", "dashboard-"+name+".png")
		if update {
			if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v: run make pictures", err)
		}
	}
}

// series returns what asks for the series of a query as they are drawn.
func (a asker) series(t *testing.T) func(drawing.Target) []drawing.Series {
	return func(q drawing.Target) []drawing.Series {
		var list []drawing.Series
		for _, found := range a.ask(t, q) {
			one := drawing.Series{Labels: found.Metric.Map()}
			for _, point := range found.Floats {
				one.Points = append(one.Points, drawing.Point{At: point.T, Value: point.F})
			}
			list = append(list, one)
		}
		return list
	}
}
