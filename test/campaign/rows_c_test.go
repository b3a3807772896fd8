package campaign

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

func errorRows() []row {
	return []row{
		{id: "C1", what: "each error x each verb and resource of the operator, for 1 call, 5 calls, and all of some seconds", sample: 4, points: errorMatrix},
		{id: "W1", what: "at rest", sample: 1, points: fixed(point{name: "I", workload: install})},
	}
}

// apiError is one way in which a call fails.
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

// storm is for how long all calls of a kind fail.
const storm = 8 * time.Second

// errorMatrix crosses errors, calls and how many of them fail. Rows B are about watches.
func errorMatrix(ctx context.Context, c *campaign) ([]point, error) {
	writes, err := c.writesOf(ctx, specChange)
	if err != nil {
		return nil, err
	}
	kinds := map[fault.Request]bool{}
	for request := range writes {
		kinds[fault.Request{Verb: request.Verb, Resource: request.Resource, Subresource: request.Subresource}] = true
	}
	for _, resource := range []string{"nodes", "pods", "daemonsets", "configmaps", "runtimeclasses", "clusterpolicies"} {
		kinds[fault.Request{Verb: fault.List, Resource: resource}] = true
	}
	var points []point
	for _, request := range slices.SortedFunc(maps.Keys(kinds), func(a, b fault.Request) int { return strings.Compare(a.String(), b.String()) }) {
		for _, e := range apiErrors {
			for _, count := range []int64{1, 5, 0} {
				points = append(points, errorPoint(request, e, count))
			}
		}
	}
	return points, nil
}

func errorPoint(request fault.Request, e apiError, count int64) point {
	name := fmt.Sprintf("%s/%s/%d", strings.NewReplacer(" ", "_", "/", "-").Replace(request.String()), e.name, count)
	if count == 0 {
		name = strings.TrimSuffix(name, "0") + "all"
	}
	rule := fault.Rule{Match: fault.Exactly(request), Phase: e.phase, Count: count, Action: e.Action}
	return point{
		name: name, workload: specChange,
		faults: []Fault{{When: When{Moment: Start}, What: API{rule}, For: storm}},
		// A list that fails at the start ends the operator, as its caches are not in time.
		options: options{exits: request.Verb == fault.List, blind: true},
	}
}
