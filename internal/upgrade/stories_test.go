package upgrade

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/drain"
)

// A story is a file of lines: "# " starts a text for the reader, "> " a command, and what follows a command is what the
// planner did and reports. UPDATE_GOLDEN=1 writes the latter.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			got := newTeller(t).tell(string(want))
			if os.Getenv("UPDATE_GOLDEN") != "" {
				NewWithT(t).Expect(os.WriteFile(file, []byte(got), 0o644)).To(Succeed())
				return
			}
			NewWithT(t).Expect(got).To(Equal(string(want)), "UPDATE_GOLDEN=1 writes the files")
		})
	}
}

// toldTransitions are the transitions of all stories.
func toldTransitions(t *testing.T) map[[2]State]bool {
	t.Helper()
	all := map[[2]State]bool{}
	files, err := filepath.Glob("testdata/stories/*.txt")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		text, err := os.ReadFile(file)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		s := newTeller(t)
		s.tell(string(text))
		maps.Copy(all, s.e.transitions)
	}
	return all
}

// teller plays a story.
type teller struct {
	t *testing.T
	*state
	out strings.Builder
	e   *explorer
	// target of new nodes.
	target string
	// said is the last report of each node, so that only changes are shown.
	said map[string]string
}

func newTeller(t *testing.T) *teller {
	t.Helper()
	w := &world{now: epoch, slots: Slots{}, policies: map[string]Policy{}}
	s := &state{world: w, peak: 1000}
	return &teller{t: t, state: s, target: "v1", said: map[string]string{}, e: newExplorer(shipped, 0)}
}

func (s *teller) tell(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "> "):
			fmt.Fprintln(&s.out, line)
			if command, found := strings.CutPrefix(line, "> "); found {
				s.command(strings.Fields(command))
			}
		case line == "":
			fmt.Fprintln(&s.out)
		}
	}
	return strings.TrimRight(s.out.String(), "\n") + "\n"
}

func (s *teller) say(format string, values ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", values...) }

// command carries out one line.
func (s *teller) command(words []string) {
	s.t.Helper()
	switch verb, rest := words[0], words[1:]; verb {
	case "nodes":
		s.nodes(rest)
	case "policy":
		s.edit(rest)
	case "target":
		s.retarget(rest)
	case "pod":
		s.addPod(rest)
	case "run":
		s.run(rest)
	case "wait":
		passed, err := time.ParseDuration(rest[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(passed)
		s.run(nil)
	case "world":
		s.setting(rest)
	case "report":
		s.report()
	default:
		s.onNode(verb, rest)
	}
}

// nodes adds nodes: names, and group=NAME.
func (s *teller) nodes(words []string) {
	group := ""
	for _, word := range words {
		if value, found := strings.CutPrefix(word, "group="); found {
			group = value
			continue
		}
		m := s.newMachine(word, s.target)
		m.Group = group
		s.machines = append(s.machines, m)
	}
}

// retarget edits the driver: the target, and the group if not all.
func (s *teller) retarget(words []string) {
	s.target = words[0]
	for i := range s.machines {
		m := &s.machines[i]
		if len(words) == 1 || m.Group == words[1] {
			m.Target = words[0]
		}
	}
}

// edit changes the policy of a group: KEY=VALUE.
func (s *teller) edit(words []string) {
	group := ""
	policy := Policy{}
	for _, word := range words {
		if value, found := strings.CutPrefix(word, "group="); found {
			group = value
		}
	}
	policy = s.policies[group]
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if key != "group" {
			s.field(&policy, key, value)
		}
	}
	s.policies[group] = policy
}

func (s *teller) field(p *Policy, key, value string) {
	s.t.Helper()
	flags := map[string]*bool{
		"auto": &p.Auto, "paused": &p.Paused, "pull": &p.PullImages, "jobs": &p.WaitsForJobs, "drain": &p.Drains,
	}
	durations := map[string]*time.Duration{
		"jobsTimeout": &p.JobsTimeout, "podDeletionTimeout": &p.PodDeletionTimeout, "drainTimeout": &p.DrainTimeout,
		"pullTimeout": &p.PullTimeout, "driverTimeout": &p.DriverTimeout, "validationTimeout": &p.ValidationTimeout,
		"retryAfter": &p.RetryAfter, "maxRetryAfter": &p.MaxRetryAfter,
	}
	var err error
	switch {
	case flags[key] != nil:
		*flags[key] = value == "true"
	case durations[key] != nil:
		*durations[key], err = time.ParseDuration(value)
	case key == "maxParallel":
		p.MaxParallel, err = strconv.Atoi(value)
	case key == "maxUnavailable":
		p.MaxUnavailable = intstr.Parse(value)
	default:
		s.t.Fatalf("no field %s", key)
	}
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
}

// addPod adds a pod: NODE NAMESPACE/NAME KIND, and why it is blocked or forbidden.
func (s *teller) addPod(words []string) {
	m := s.machine(words[0])
	namespace, name, _ := strings.Cut(words[1], "/")
	p := pod{user: words[2] != "cpu", job: words[2] == "job"}
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(words[1])
	if len(words) > 4 {
		p.Blocked, p.Forbidden = strings.Join(words[4:], " "), words[3] == "forbidden"
	}
	m.pods = append(slices.Clone(m.pods), p)
}

// setting changes what the world does: NAME on or off.
func (s *teller) setting(words []string) {
	s.t.Helper()
	flags := map[string]*bool{
		"drivers-fail": &s.driversFail, "pulls-fail": &s.pullsFail, "pulls-hang": &s.pullsHang,
		"validators-fail": &s.validatorsFail, "validators-missing": &s.validatorsMissing, "pods-stay": &s.podsStay,
	}
	flag, found := flags[words[0]]
	if !found {
		s.t.Fatalf("no setting %s", words[0])
	}
	*flag = words[1] == "on"
}

// onNode is something that happens on a node, or that a person does there.
func (s *teller) onNode(verb string, words []string) {
	s.t.Helper()
	m := s.machine(words[0])
	if verb == "added-again" {
		m.UID, _ = s.created()
		m.Unschedulable, m.started = false, 0
		return
	}
	happen, found := onMachine[verb]
	if !found {
		s.t.Fatalf("no command %s", verb)
	}
	happen(m, words[1:])
}

// onMachine are the commands that change one node.
var onMachine = map[string]func(m *machine, words []string){
	"cordon": func(m *machine, _ []string) {
		m.Unschedulable, m.foreign = true, m.Record == nil || !m.Record.Cordoned
	},
	"cordoned-by-nvidia": func(m *machine, _ []string) { m.Unschedulable = true },
	"uncordon":           func(m *machine, _ []string) { m.Unschedulable, m.foreign = false, false },
	"dies":               func(m *machine, _ []string) { m.KubeletReady = false },
	"returns":            func(m *machine, _ []string) { m.KubeletReady = true },
	"reboots":            func(m *machine, _ []string) { m.BootID, m.Driver = m.BootID+"'", nil },
	"breaks": func(m *machine, _ []string) {
		m.Driver = changed(m.Driver, func(p *Pod) { p.Ready, p.Failed, p.Reason = false, true, "ContainerCrashed" })
	},
	"recovers": func(m *machine, _ []string) {
		m.Driver = changed(m.Driver, func(p *Pod) { p.Failed, p.Reason, p.Message = false, "", "" })
	},
	"revalidates": func(m *machine, _ []string) {
		m.Validator = changed(m.Validator, func(p *Pod) { p.Failed, p.Reason, p.Message = false, "", "" })
	},
	"delete-driver": func(m *machine, _ []string) { m.Driver = nil },
	"delete-pods":   func(m *machine, _ []string) { m.pods = nil },
	"unblock": func(m *machine, _ []string) {
		m.pods = slices.Clone(m.pods)
		for i := range m.pods {
			m.pods[i].Blocked, m.pods[i].Forbidden = "", false
		}
	},
	"skip":               func(m *machine, _ []string) { m.Skip = true },
	"unskip":             func(m *machine, _ []string) { m.Skip = false },
	"request":            func(m *machine, _ []string) { m.Requested = true },
	"label":              func(m *machine, words []string) { m.State = State(words[0]) },
	"initially-cordoned": func(m *machine, _ []string) { m.InitiallyCordoned = true },
	"loses-gpus":         func(m *machine, _ []string) { m.Installs = false },
	"moves":              func(m *machine, words []string) { m.MoveTo, m.poolTarget = words[0], words[1] },
}

// run carries out plans until nothing changes, or until a node is in the state: "until NODE STATE".
func (s *teller) run(words []string) {
	s.t.Helper()
	for range 500 {
		if len(words) == 3 && string(s.machine(words[1]).State) == words[2] {
			return
		}
		if !s.step() {
			s.changes()
			return
		}
	}
	s.t.Fatalf("nothing comes to rest:\n%s", s.out.String())
}

// step carries out one write, or lets one thing happen.
func (s *teller) step() bool {
	s.t.Helper()
	plan := s.cluster().Plan()
	if plan.Slots != nil {
		s.slots = plan.Slots
		s.say("slots: %s", cmp.Or(strings.Join(sortedKeys(s.slots), ", "), "none"))
		return true
	}
	if steps := effective(plan.Steps); len(steps) > 0 {
		s.tellStep(steps[0])
		s.e.observe(s.state, steps[0])
		if err := s.apply(steps[0]); err != nil {
			s.t.Fatalf("%v\n%s", err, s.out.String())
		}
		s.settleGhosts()
		return true
	}
	if happenings := s.world.next(); len(happenings) > 0 {
		h := happenings[0]
		s.say("%s: (%s)", s.machines[h.node].Name, h.what)
		s.happen(h)
		s.settleGhosts()
		return true
	}
	return false
}

func (s *teller) settleGhosts() {
	for i := range s.machines {
		if s.machines[i].validated() {
			s.machines[i].replaced = false
		}
	}
}

func (s *teller) tellStep(step *Step) {
	switch {
	case step.Patch != nil:
		from, to := transition(&s.machine(step.Node).Node, step.Patch)
		s.say("%s: %s -> %s%s: %s", step.Node, from, to, notes(step.Patch), step.Why)
	case step.Action == ActionEvict:
		s.say("%s: evict %s: %s", step.Node, drain.Names(step.Pods), step.Why)
	default:
		s.say("%s: %s: %s", step.Node, step.Action, step.Why)
	}
}

// notes are what a patch does beside the state.
func notes(patch *Patch) string {
	var all []string
	if u := patch.Unschedulable; u != nil && *u {
		all = append(all, "cordon")
	} else if u != nil {
		all = append(all, "uncordon")
	}
	if patch.ReleasePool {
		all = append(all, "leave the pool")
	}
	if patch.Record != nil && patch.State != patch.Record.State {
		all = append(all, "no label")
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// changes shows the nodes whose report has changed.
func (s *teller) changes() {
	plan := s.cluster().Plan()
	for i := range s.machines {
		name := s.machines[i].Name
		line := ""
		if progress, found := plan.Report.Nodes[name]; found {
			held := ""
			if progress.Held {
				held = "held, "
			}
			line = fmt.Sprintf("= %s: %s, %s%s: %s", name, idleAsDone(progress.State), held, progress.Reason,
				progress.Message)
		}
		if line != "" && line != s.said[name] {
			s.say("%s", line)
		}
		s.said[name] = line
	}
	if !plan.Until.IsZero() {
		s.say("= the plan changes after %s", plan.Until.Sub(s.now))
	}
}

// report shows the counts.
func (s *teller) report() {
	r := s.cluster().Plan().Report
	s.say("= pending %d, in progress %d, done %d, failed %d, held %d, target %q, remaining %s",
		r.Pending, r.InProgress, r.Done, r.Failed, r.Held, r.Target, r.Remaining)
}
