package campaign

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// apiError is one way in which a request fails.
type apiError struct {
	name  string
	phase fault.Phase
	fault.Action
}

var apiErrors = []apiError{
	{name: "409", Action: fault.Action{Status: http.StatusConflict}},
	{name: "422", Action: fault.Action{Status: http.StatusUnprocessableEntity}},
	{name: "429", Action: fault.Action{Status: http.StatusTooManyRequests}},
	{name: "429-retry-after", Action: fault.Action{Status: http.StatusTooManyRequests, RetryAfter: 1}},
	{name: "500", Action: fault.Action{Status: http.StatusInternalServerError}},
	{name: "503", Action: fault.Action{Status: http.StatusServiceUnavailable}},
	{name: "504", Action: fault.Action{Status: http.StatusGatewayTimeout}},
	{name: "reset", Action: fault.Action{Drop: true}},
	{name: "response-lost", phase: fault.After, Action: fault.Action{Drop: true}},
	{name: "timeout", Action: fault.Action{Delay: 6 * time.Second, Drop: true}},
	{name: "garbage", phase: fault.After, Action: fault.Action{Garbage: true}},
}

// storm is how long all requests of a type fail.
const storm = 8 * time.Second

// errorMatrix combines errors, requests and the number of failures. Rows B cover watches.
func errorMatrix(ctx context.Context, c *campaign) ([]point, error) {
	writes, err := c.writesOf(ctx, specChange, Start)
	if err != nil {
		return nil, err
	}
	kinds := map[fault.Request]int{}
	for request := range writes {
		kinds[fault.Request{Verb: request.Verb, Resource: request.Resource, Subresource: request.Subresource}]++
	}
	reads, err := c.readsOf(ctx, specChange)
	if err != nil {
		return nil, err
	}
	for request := range reads {
		// Without a resource it is discovery, which the operator needs to start; rows T cover leases.
		if request.Resource != "" && request.Resource != "leases" {
			kinds[request]++
		}
	}
	var points []point
	for _, request := range ordered(kinds) {
		counts := []int64{1, 5, 0}
		if slices.Contains(fault.Reads(), request.Verb) {
			// Any request that fails once is retried.
			counts = counts[2:]
		}
		for _, e := range apiErrors {
			for _, count := range counts {
				points = append(points, errorPoint(request, e, count))
			}
		}
	}
	return points, nil
}

func errorPoint(request fault.Request, e apiError, count int64) point {
	name := fmt.Sprintf("%s/%s/%d", nameOf(request), e.name, count)
	if count == 0 {
		name = strings.TrimSuffix(name, "0") + "all"
	}
	match := fault.Exactly(request)
	match.Name = ""
	rule := fault.Rule{Match: match, Phase: e.phase, Count: count, Action: e.Action}
	return point{
		name: name, workload: specChange,
		faults: []Fault{{When: When{Moment: Start}, What: API{rule}, For: storm}},
		// A failed read at the start may end the operator, as its caches do not sync in time.
		options: options{exits: slices.Contains(fault.Reads(), request.Verb), blind: true},
	}
}

func errorRows() []row {
	rows := []row{
		{
			id: "C1", what: "each error x each verb and resource of the operator, for 1 request, 5 requests, and all for 8 s",
			sample: 2, always: true, points: errorMatrix,
		},
		{id: "C2", what: "another client writes to a node every 100 ms for 8 s", sample: 1, points: fixed(
			point{name: "I", workload: install, options: options{differs: true}, faults: []Fault{
				{When: When{Moment: Start}, What: Repeated{100 * time.Millisecond, touchNode}, For: 8 * time.Second},
			}},
		)},
		{id: "C3", what: "the API server is down or frozen", sample: 1, points: outages()},
		leftOut("C4", "etcd is restored from an older snapshot",
			"the resourceVersions go back, so that no watcher can order the history; S1 to S4 cover it"),
		leftOut("C5", "the API server restarts with another CA", "a pod gets the new CA with its ServiceAccount, and a new "+
			"process; here a kubeconfig has it. Refused tokens are row R6"),
		{id: "C6", what: "an aggregated API is down", sample: 1, points: fixed(
			point{
				name: "I", workload: install, faults: []Fault{{When: When{Moment: Start}, What: brokenAPI, For: 10 * time.Second}},
			},
			point{name: "G", workload: specChange, faults: []Fault{
				{When: When{Moment: Ready}, What: brokenAPI, For: 10 * time.Second}, {
					When: When{Moment: Ready, After: time.Second}, What: Kill,
				},
			}},
		)},
		{
			id: "C7", what: "kube-controller-manager or kube-scheduler is suspended for 10 s", sample: 1,
			points: stoppedControllers(),
		},
		elsewhere("C8", "the CRD is deleted or older", "TestOutdatedDefinitionIsReported (test/integration)"),
	}
	return rows
}

// touchNode writes an irrelevant annotation.
func touchNode(ctx context.Context, r *run) error {
	return r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}},
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, invariantLabel, time.Now().UnixNano()))
}

func outages() func(context.Context, *campaign) ([]point, error) {
	var points []point
	for _, w := range []*workload{install, specChange, scale} {
		moment := Changed
		if w.change == nil {
			moment = Created
		}
		for _, o := range []struct {
			kind Outage
			last time.Duration
		}{{Down, 5 * time.Second}, {Down, 20 * time.Second}, {Frozen, 5 * time.Second}} {
			points = append(points, point{
				name: fmt.Sprintf("%s/%s/%.0fs", w.id, o.kind, o.last.Seconds()), workload: w,
				faults: []Fault{{When: When{Moment: moment, After: 500 * time.Millisecond}, What: o.kind, For: o.last}},
				// An API server that has just started has no roles for a moment. The watches of the simulated kubelets pause for
				// up to a minute after an outage.
				options: options{exits: true, blind: true, rights: true, patience: 90 * time.Second},
			})
		}
	}
	return fixed(points...)
}

// brokenAPI is an aggregated API of a broken extension.
var brokenAPI = Actor{
	Does: func(ctx context.Context, r *run) error { return r.quiet.Create(ctx, apiService()) },
	Back: func(ctx context.Context, r *run) error { return r.quiet.Delete(ctx, apiService()) },
}

func apiService() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{
			"name": "v1.broken.example.com",
		},
		"spec": map[string]any{
			"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": tenant, "name": "missing"},
		},
	}}
}

func stoppedControllers() func(context.Context, *campaign) ([]point, error) {
	var points []point
	for _, w := range []*workload{install, specChange, disable} {
		for _, name := range []Controller{"kube-controller-manager", "kube-scheduler"} {
			moment := Ready
			if w.change == nil {
				moment = Start
			}
			points = append(points, point{name: w.id + "/" + string(name), workload: w,
				faults: []Fault{{When: When{Moment: moment}, What: name, For: 10 * time.Second}}, options: options{blind: true}})
		}
	}
	return fixed(points...)
}
