package export

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// noon is when the exporter of these tests was started; times are seconds after it.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// fresh is a first validation, renewed one that replaces a valid marker.
func fresh(started, written float64) *validation {
	return &validation{started: at(started), at: at(written)}
}

func renewed(started, written float64) *validation {
	return &validation{started: at(started), at: at(written), renewed: true}
}

type markers = map[labels.Marker]*validation

func TestDurations(t *testing.T) {
	const driver, toolkit, cuda, plugin = labels.MarkerDriver, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin
	week := (7 * 24 * time.Hour).Seconds()
	type look struct {
		now   float64
		found markers
		want  map[labels.Marker]float64
	}
	tests := map[string][]look{
		"each stage counts while it is not reached, and is fixed afterwards": {
			{now: 0, want: map[labels.Marker]float64{driver: 0}},
			{now: 90, want: map[labels.Marker]float64{driver: 90}},
			{now: 130, found: markers{driver: fresh(5, 125)}, want: map[labels.Marker]float64{driver: 120, toolkit: 5}},
			{now: 140, found: markers{driver: fresh(5, 125)}, want: map[labels.Marker]float64{driver: 120, toolkit: 15}},
			{now: 151, found: markers{driver: fresh(5, 125), toolkit: fresh(149, 150)},
				want: map[labels.Marker]float64{driver: 120, toolkit: 25, cuda: 1}},
			{
				now:   week,
				found: markers{driver: fresh(5, 125), toolkit: fresh(149, 150), cuda: fresh(151, 152.5), plugin: fresh(153, 155)},
				want:  map[labels.Marker]float64{driver: 120, toolkit: 25, cuda: 2.5, plugin: 2.5},
			},
		},
		"a stage after one that is not reached has no value, even with an old marker": {
			{now: 9, found: markers{toolkit: fresh(1, 2), plugin: fresh(3, 4)}, want: map[labels.Marker]float64{driver: 9}},
		},
		"an exporter that starts late exports the same for reached stages": {
			{now: 0, found: markers{driver: fresh(-200, -80), toolkit: fresh(-60, -55)},
				want: map[labels.Marker]float64{driver: 120, toolkit: 25, cuda: 55}},
		},
		"parts that are validated again by a restarted validator took the time of that": {
			{
				now: 0,
				found: markers{
					driver:  fresh(-week, -week+60),
					toolkit: fresh(-week+70, -week+71),
					cuda:    fresh(-week+72, -week+73),
					plugin:  fresh(-week+74, -week+75),
				},
				want: map[labels.Marker]float64{driver: 60, toolkit: 11, cuda: 2, plugin: 2},
			},
			// The toolkit's marker is removed, and those after it still exist.
			{
				now:   30,
				found: markers{driver: fresh(-week, -week+60), cuda: fresh(-week+72, -week+73), plugin: fresh(-week+74, -week+75)},
				want:  map[labels.Marker]float64{driver: 60, toolkit: 0},
			},
			{
				now:   32,
				found: markers{driver: fresh(-week, -week+60), cuda: fresh(-week+72, -week+73), plugin: fresh(-week+74, -week+75)},
				want:  map[labels.Marker]float64{driver: 60, toolkit: 2},
			},
			{
				now: 34,
				found: markers{
					driver:  fresh(-week, -week+60),
					toolkit: renewed(30, 33),
					cuda:    fresh(-week+72, -week+73),
					plugin:  fresh(-week+74, -week+75),
				},
				want: map[labels.Marker]float64{driver: 60, toolkit: 3, plugin: 2},
			},
			{
				now: 36,
				found: markers{
					driver:  fresh(-week, -week+60),
					toolkit: renewed(30, 33),
					cuda:    renewed(34, 35),
					plugin:  fresh(-week+74, -week+75),
				},
				want: map[labels.Marker]float64{driver: 60, toolkit: 3, cuda: 1},
			},
			{
				now: 40,
				found: markers{
					driver:  fresh(-week, -week+60),
					toolkit: renewed(30, 33),
					cuda:    renewed(34, 35),
					plugin:  renewed(36, 37),
				},
				want: map[labels.Marker]float64{driver: 60, toolkit: 3, cuda: 1, plugin: 1},
			},
		},
		"a toolkit older than the driver that was validated again has no value": {
			{now: 0, found: markers{driver: renewed(-10, -8), toolkit: fresh(-90, -80), cuda: fresh(-79, -78)},
				want: map[labels.Marker]float64{driver: 2, cuda: 2, plugin: 78}},
		},
		"a new driver begins when the old one was missed": {
			{
				now:   0,
				found: markers{driver: fresh(-200, -100), toolkit: fresh(-90, -80), cuda: fresh(-79, -78), plugin: fresh(-77, -76)},
				want:  map[labels.Marker]float64{driver: 100, toolkit: 20, cuda: 2, plugin: 2},
			},
			{now: 100, want: map[labels.Marker]float64{driver: 0}},
			{now: 160, want: map[labels.Marker]float64{driver: 60}},
			{now: 200, found: markers{driver: fresh(120, 190)}, want: map[labels.Marker]float64{driver: 70, toolkit: 10}},
		},
		"a clock that is set back makes nothing negative": {
			{now: -50, want: map[labels.Marker]float64{driver: 0}},
			{now: -50, found: markers{driver: fresh(0, 10)}, want: map[labels.Marker]float64{driver: 10, toolkit: 0}},
			{now: -50, found: markers{driver: fresh(20, 10)}, want: map[labels.Marker]float64{toolkit: 0}},
		},
		"a marker of another program has no start": {
			{
				now:   9,
				found: markers{driver: {at: at(5)}, toolkit: {at: at(7)}},
				want:  map[labels.Marker]float64{toolkit: 2, cuda: 2},
			},
		},
	}
	for name, looks := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			durations := newDurations(DefaultMarkers, noon)
			for i, look := range looks {
				got := map[labels.Marker]float64{}
				durations.track(look.found, at(look.now))
				for m, took := range durations.of(look.found, at(look.now)) {
					got[m] = took.Seconds()
				}
				g.Expect(got).To(Equal(look.want), "look %d", i)
			}
		})
	}
}

func TestDurationsLeaveOutStagesThatAreNotValidatedOnTheNode(t *testing.T) {
	g := NewWithT(t)
	durations := newDurations([]labels.Marker{labels.MarkerToolkit, labels.MarkerPlugin}, noon)
	g.Expect(durations.of(markers{labels.MarkerToolkit: fresh(1, 4)}, at(9))).To(Equal(map[labels.Marker]time.Duration{
		labels.MarkerToolkit: 3 * time.Second, labels.MarkerPlugin: 5 * time.Second}))
}

func TestMarkersByName(t *testing.T) {
	g := NewWithT(t)
	g.Expect(MarkerNames()).To(Equal([]string{"driver", "toolkit", "cuda", "plugin"}))
	g.Expect(MarkersNamed(MarkerNames())).To(Equal(DefaultMarkers))
	g.Expect(MarkersNamed([]string{"plugin", "driver"})).
		To(Equal([]labels.Marker{labels.MarkerDriver, labels.MarkerPlugin}), "in the order on the node")
	_, err := MarkersNamed([]string{"driver", "mofed"})
	g.Expect(err).To(MatchError(`unknown marker "mofed"`))
}

func TestReadTakesOnlyWhatAWaitWouldTake(t *testing.T) {
	const whole = "BOOT_ID=now\nDRIVER_INSTANCE=pod-1\nSTARTED_AT=1700000000\nRENEWED=true\n"
	tests := map[string]struct {
		content string
		want    *validation
	}{
		"a marker of this boot and driver": {content: whole,
			want: &validation{at: noon, started: time.Unix(1700000000, 0), renewed: true}},
		"without the assignments that earlier versions did not write": {
			content: "BOOT_ID=now\nDRIVER_INSTANCE=pod-1\n",
			want:    &validation{at: noon},
		},
		"with a malformed time": {
			content: strings.ReplaceAll(whole, "1700000000", "noon"),
			want:    &validation{at: noon, renewed: true},
		},
		"one of another boot":   {content: strings.ReplaceAll(whole, "=now", "=before")},
		"one of another driver": {content: strings.ReplaceAll(whole, "pod-1", "pod-0")},
		"an incomplete one":     {content: "BOOT_ID=now\nDRIVER_INST"},
		"none":                  {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := marker.Dir{Path: t.TempDir(), BootID: "now"}
			g.Expect(os.WriteFile(filepath.Join(dir.Path, ".driver-ctr-ready"), []byte("DRIVER_INSTANCE: pod-1\n"), 0o600)).
				To(Succeed())
			if tc.content != "" {
				path := filepath.Join(dir.Path, "toolkit-ready")
				g.Expect(os.WriteFile(path, []byte(tc.content), 0o600)).To(Succeed())
				g.Expect(os.Chtimes(path, noon, noon)).To(Succeed())
			}
			got := read(dir, labels.MarkerToolkit)
			if tc.want == nil {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got).NotTo(BeNil())
			g.Expect(got.at).To(BeTemporally("==", tc.want.at))
			g.Expect(got.started).To(BeTemporally("==", tc.want.started))
			g.Expect(got.renewed).To(Equal(tc.want.renewed))
		})
	}
}
