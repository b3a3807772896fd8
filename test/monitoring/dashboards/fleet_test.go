package dashboards

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"
)

// The recorded time: a working morning.
var (
	begin = time.Date(2026, 3, 4, 6, 0, 0, 0, time.UTC)
	end   = begin.Add(6 * time.Hour)
)

// scrapeEvery is the interval of all scrapes.
const scrapeEvery = time.Minute

// gpuNode is a node of the recorded fleet.
type gpuNode struct {
	name    string
	release release
	// honor: its ServiceMonitor has honorLabels.
	honor bool
	gpus  int
	// mig divides GPU 0 into slices.
	mig bool
	// teams hold the GPUs in turn; empty for a free GPU.
	teams []string
}

// mixed is a fleet in which all releases of the exporter run, as while it is replaced.
var mixed = []gpuNode{
	{name: "train-1", release: release483, gpus: 8, teams: []string{"vision"}},
	{name: "train-2", release: release483, gpus: 8, teams: []string{"vision", "vision", "speech", "speech"}},
	{name: "train-3", release: release490, gpus: 8, teams: []string{"speech", "speech", "notebooks", ""}},
	{name: "infer-1", release: release482, gpus: 4, teams: []string{"search"}},
	{name: "infer-2", release: release490, gpus: 4, teams: []string{"search", "search", "", ""}},
	{name: "lab-1", release: release490, gpus: 4, mig: true, teams: []string{"notebooks", "notebooks", "speech"}},
}

// only returns a small fleet with one release of the exporter.
func only(r release, honor bool) []gpuNode {
	return []gpuNode{
		{name: "train-1", release: r, honor: honor, gpus: 3, mig: true, teams: []string{"vision", "notebooks", ""}},
		{name: "train-2", release: r, honor: honor, gpus: 3, teams: []string{"speech", "notebooks", ""}},
	}
}

// noise is a fixed number between 0 and 1 for what is named.
func noise(parts ...any) float64 {
	h := fnv.New32a()
	fmt.Fprint(h, parts...)
	return float64(h.Sum32()%10007) / 10007
}

// use is the share of time in which a GPU of a team works.
func use(team, what string, at time.Time) float64 {
	minutes := at.Sub(begin).Minutes()
	jitter := noise(what, int(minutes/2)) - 0.5
	switch team {
	case "vision": // long training, with a checkpoint now and then
		if math.Mod(minutes+100*noise(what[:6]), 75) < 4 {
			return 0.08
		}
		return 0.92 + 0.08*jitter
	case "speech": // jobs with breaks between them
		if math.Mod(minutes+90*noise(what), 120) < 35 {
			return 0
		}
		return 0.75 + 0.25*jitter
	case "search": // inference, with more work as the day begins
		return 0.15 + 0.5/(1+math.Exp(-(minutes-150)/40)) + 0.15*jitter
	case "notebooks": // held, and hardly used
		if noise(what, int(minutes/30)) > 0.9 && what[len(what)-1] != '2' {
			return 0.5 + 0.3*jitter
		}
		return 0.01
	}
	return 0
}

// memory is the share that a team's programs fill.
var memory = map[string]float64{"vision": 0.86, "speech": 0.55, "search": 0.72, "notebooks": 0.22}

// loaded returns what a GPU of a team does at a time.
func loaded(team, what string, at time.Time) load {
	util := use(team, what, at)
	filled := memory[team]
	if filled > 0 {
		filled += 0.1 * (noise(what) - 0.5)
	}
	minutes := at.Sub(begin).Minutes()
	drawn := 72 + 560*util + 20*noise(what, int(minutes))
	return load{
		util: util, memory: filled, power: math.Round(drawn),
		temperature: 29 + 6*noise(what) + 42*util + 3*noise(what, int(minutes/5)), energy: 5e6 + minutes*60*300,
	}
}

// units returns the GPUs of a node, and its MIG slices, at a time.
func (n gpuNode) units(at time.Time) []unit {
	var list []unit
	add := func(gpu int, profile, slice string) {
		team := n.teams[gpu%len(n.teams)]
		if slice != "" {
			team = n.teams[len(list)%len(n.teams)]
		}
		what := fmt.Sprintf("%s-%d%s", n.name, gpu, slice)
		u := unit{gpu: gpu, profile: profile, sliceID: slice, team: team, load: loaded(team, what, at)}
		if team != "" {
			u.pod = fmt.Sprintf("%s-%s", team, what)
		}
		if n.name == "train-1" && gpu == 2 && at.Sub(begin) > 210*time.Minute {
			u.xid = 94
		}
		list = append(list, u)
	}
	for gpu := range n.gpus {
		if n.mig && gpu == 0 {
			for i := range 3 {
				add(gpu, "2g.20gb", fmt.Sprint(3+i))
			}
			continue
		}
		add(gpu, "", "")
	}
	return list
}
