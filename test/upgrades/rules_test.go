package upgrades

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// change is a cordon or an uncordon.
type change struct {
	nodeVersion
	// ours: the operator made it.
	ours bool
}

// changes returns the cordons and uncordons since a version, of all nodes.
func (w *watcher) changes(since int64) []change {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.changesLocked(since)
}

func (w *watcher) changesLocked(since int64) []change {
	var found []change
	previous := map[string]nodeVersion{}
	for _, node := range w.nodes {
		was, known := previous[node.uid]
		previous[node.uid] = node
		if node.deleted || !known || was.cordoned == node.cordoned || node.version <= since {
			continue
		}
		found = append(found, change{node, !w.foreign[node.version]})
	}
	return found
}

// cordons returns the operator's cordons of each node since a version.
func (w *watcher) cordons(since int64) map[string]int {
	counts := map[string]int{}
	for _, c := range w.changes(since) {
		if c.ours && c.cordoned {
			counts[c.name]++
		}
	}
	return counts
}

// span is the time from the first cordon to the last uncordon since a version.
func (w *watcher) span(since int64) time.Duration {
	changes := w.changes(since)
	if len(changes) == 0 {
		return 0
	}
	return changes[len(changes)-1].seen.Sub(changes[0].seen)
}

// most returns the largest set of nodes that were unavailable at the same version, since a version.
func (w *watcher) most(since int64) []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	unavailable := map[string]bool{}
	var most []string
	for _, node := range w.nodes {
		if node.unavailable {
			unavailable[node.name] = true
		} else {
			delete(unavailable, node.name)
		}
		if node.version > since && len(unavailable) > len(most) {
			most = slices.Sorted(maps.Keys(unavailable))
		}
	}
	return most
}

// replaced counts the driver pods that were created on each node since a version.
func (w *watcher) replaced(since int64) map[string]int {
	w.lock.Lock()
	defer w.lock.Unlock()
	known := map[string]bool{}
	counts := map[string]int{}
	for _, pod := range w.pods {
		if pod.app != driverApp || known[pod.uid] {
			continue
		}
		known[pod.uid] = true
		if pod.version > since {
			counts[pod.node]++
		}
	}
	return counts
}

// broken returns what no upgrade may do, whatever happens.
func (w *watcher) broken() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	var found []string
	if w.err != nil {
		found = append(found, w.err.Error())
	}
	foreign := map[string]bool{}
	for _, c := range w.changesLocked(0) {
		if !c.ours {
			foreign[c.uid] = c.cordoned
			continue
		}
		if c.cordoned {
			continue
		}
		if foreign[c.uid] {
			found = append(found, fmt.Sprintf("%d: a cordon of %s by a user was undone", c.version, c.name))
		}
		if c.state != stateDone {
			continue
		}
		if driver, validator := w.podsAt(c); !validated(driver, validator) {
			found = append(found, fmt.Sprintf("%d: %s was uncordoned before validation had passed: driver %s, validator %s",
				c.version, c.name, driver, validator))
		}
	}
	return found
}

// validated reports whether driver and validator are ready, and the validator is not older than the driver.
func validated(driver, validator podVersion) bool {
	return driver.ready && validator.ready && !validator.created.Before(driver.created)
}

// podsAt returns the driver and the validator at the version of the node.
func (w *watcher) podsAt(at change) (driver, validator podVersion) {
	for _, pod := range w.pods {
		if pod.node != at.name || pod.version > at.version {
			continue
		}
		current := &driver
		if pod.app == validatorApp {
			current = &validator
		}
		switch {
		case !pod.deleted:
			*current = pod
		case current.uid == pod.uid:
			*current = podVersion{}
		}
	}
	return driver, validator
}

// story describes what happened to cordons and states of the nodes, and to their drivers and validators.
func (w *watcher) story() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	type line struct {
		version int64
		text    string
	}
	var lines []line
	previous := map[string]string{}
	add := func(key string, version int64, seen time.Time, text, detail string) {
		if previous[key] != text {
			lines = append(lines, line{version, fmt.Sprintf("%s %7d %s %s\n", seen.Format("05.000"), version, text, detail)})
		}
		previous[key] = text
	}
	for _, node := range w.nodes {
		text := fmt.Sprintf("%s state=%q cordoned=%t Ready=%t GPUReady=%t", node.name, node.state, node.cordoned,
			node.kubeletReady, node.gpuReady)
		if node.deleted {
			text = node.name + " deleted"
		}
		add(node.name, node.version, node.seen, text, node.annotations[recordKey])
	}
	for _, pod := range w.pods {
		text := fmt.Sprintf("%s pod %s ready=%t ending=%t", pod.node, pod.name, pod.ready, pod.ending)
		if pod.deleted {
			text = fmt.Sprintf("%s pod %s deleted", pod.node, pod.name)
		}
		add(pod.uid, pod.version, pod.seen, text, "")
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.version, b.version) })
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line.text)
	}
	return text.String()
}

const recordKey = "nvidia.com/gpu-operator.driver-upgrade"
